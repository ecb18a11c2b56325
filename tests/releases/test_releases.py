"""What an earlier release has written is read to the bit, or refused by name."""

import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

import relaxjax
from relaxjax import checkpoint, compare, islands
from relaxjax.islands import replay
from tests.releases import written

RELEASES = Path(__file__).parent
of_each = pytest.mark.parametrize("release", ["0.2.0", "0.3.0"])


@of_each
@pytest.mark.few(24)
@pytest.mark.parametrize("name", written.CHAINS)
def test_a_checkpoint_goes_on(name, release):
    """Each array to the bit, and the steps behind it as the release took them."""
    folder = RELEASES / release / name
    mesh, tx = relaxjax.emulate(written.WORKERS), written.CHAINS[name]()
    like = {"state": [*relaxjax.init(tx, written.params(), mesh)], "batches": 0}
    saves = checkpoint.Checkpoints(folder / "checkpoints", mesh, every=1, keep=1)
    step, found = saves.restore(like)
    saves.close()
    assert (step, found["batches"]) == (written.STEPS, written.STEPS)
    with np.load(folder / "before.npz") as before:
        for x, key in zip(jax.tree.leaves(found["state"]), before, strict=True):
            np.testing.assert_array_equal(np.asarray(x), before[key])
    stop = written.STEPS + written.MORE
    params, _ = written.trained(tx, mesh, found["state"], written.STEPS, stop)
    with np.load(folder / "after.npz") as after:
        for key, x in params.items():
            np.testing.assert_allclose(np.asarray(x), after[key], rtol=1e-5, atol=1e-6)


@of_each
def test_islands_go_on_with_what_they_began_with(tmp_path, release):
    """The default merge of 0.2 was another one; it is refused by name."""
    shutil.copytree(RELEASES / release / "islands", tmp_path / "run")
    begun = {}
    if release == "0.2.0":
        begun = {"merge": "rda"}
        with pytest.raises(
            ValueError, match=r"merge is clipped\(.*and rda there\. Give"
        ):
            written.write_islands(tmp_path / "run", 16)
    model = written.write_islands(tmp_path / "run", 16, **begun)
    assert all(np.isfinite(x).all() for x in model.values())
    assert len(list(replay(islands.Folder(str(tmp_path / "run"))))) >= 6


@of_each
def test_a_log_is_replayed(release):
    found = list(replay(islands.Folder(str(RELEASES / release / "islands"))))
    assert [x.fault for x in found] == [""] * len(found)
    assert len(found) >= 4


@of_each
def test_a_study_is_read_and_not_mixed(release):
    """Its runs are of another program: nothing is added to them."""
    folder = RELEASES / release / "study"
    results = compare.Results(folder)
    assert {r["method"] for r in results.records()} == {*written.STUDY.values()}
    assert "local_sgd" in results.table()
    with pytest.raises(
        ValueError, match=rf"program=.*the version that began it \({release[:3]}"
    ):
        written.study().run(folder)

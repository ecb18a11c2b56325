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

DATA = Path(__file__).parent / "0.2.0"


@pytest.mark.few(24)
@pytest.mark.parametrize("name", written.CHAINS)
def test_a_checkpoint_goes_on(name):
    """Each array to the bit, and the steps behind it as the release took them."""
    mesh, tx = relaxjax.emulate(written.WORKERS), written.CHAINS[name]()
    like = {"state": [*relaxjax.init(tx, written.params(), mesh)], "batches": 0}
    saves = checkpoint.Checkpoints(DATA / name / "checkpoints", mesh, every=1, keep=1)
    step, found = saves.restore(like)
    saves.close()
    assert (step, found["batches"]) == (written.STEPS, written.STEPS)
    with np.load(DATA / name / "before.npz") as before:
        for x, key in zip(jax.tree.leaves(found["state"]), before, strict=True):
            np.testing.assert_array_equal(np.asarray(x), before[key])
    stop = written.STEPS + written.MORE
    params, _ = written.trained(tx, mesh, found["state"], written.STEPS, stop)
    with np.load(DATA / name / "after.npz") as after:
        for key, x in params.items():
            np.testing.assert_allclose(np.asarray(x), after[key], rtol=1e-5, atol=1e-6)


def test_islands_go_on_with_what_they_began_with(tmp_path):
    """The default merge is another one since; it is refused by name."""
    shutil.copytree(DATA / "islands", tmp_path / "run")
    with pytest.raises(ValueError, match=r"merge is clipped\(.*and rda there\. Give"):
        written.write_islands(tmp_path / "run", 16)
    model = written.write_islands(tmp_path / "run", 16, merge="rda")
    assert all(np.isfinite(x).all() for x in model.values())
    assert len(list(replay(islands.Folder(str(tmp_path / "run"))))) >= 6


def test_a_log_is_replayed():
    found = list(replay(islands.Folder(str(DATA / "islands"))))
    assert [x.fault for x in found] == [""] * len(found)
    assert len(found) >= 4


def test_a_study_is_read_and_not_mixed():
    """Its runs are of another program: nothing is added to them."""
    results = compare.Results(DATA / "study")
    assert {r["method"] for r in results.records()} == {*written.STUDY.values()}
    assert "local_sgd" in results.table()
    with pytest.raises(ValueError, match=r"program=.*the version that began it \(0\.2"):
        written.study().run(DATA / "study")

"""Islands with their threads, over a folder, in one process."""

import errno
import os
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from typer.testing import CliRunner

import relaxjax
from relaxjax import islands
from relaxjax.cli import app
from relaxjax.islands.carriers._folder import Folder
from relaxjax.islands.carriers._open import open_store
from relaxjax.islands.common import _log as log
from relaxjax.islands.common import _members as members
from relaxjax.islands.common._agreed import Agreed

TARGETS = np.random.default_rng(3).normal(size=(3, 12)).astype(np.float32)
PARAMS = {"a": jnp.zeros(8), "b": jnp.zeros(4)}
RATE, H = 0.3, 4
RUN: dict[str, Any] = {"sync_every": H, "fragments": 2, "mode": "rounds"}
FAST: dict[str, Any] = {"poll": 0.002, "lost_after": 60.0}
EACH_STEP: dict[str, Any] = {"sync_every": 1, "fragments": 1, "outer_rate": 1.0}
EACH_STEP["outer_momentum"] = 0.0


@jax.jit
def train(params, target):
    goal = {"a": target[:8], "b": target[8:]}
    return jax.tree.map(lambda x, t: x - RATE * (x - t), params, goal)


def live(folder: Any, number: int, steps: int, tokens: Any, found: dict, **how: Any):
    name = f"island{number}"
    settings: dict[str, Any] = RUN | FAST | {"grace": 60.0} | how
    with islands.join(PARAMS, f"folder:{folder}", name, **settings) as island:
        params = island.params
        while island.version < steps // (H // 2):
            params = train(params, TARGETS[number])
            params = island.exchange(params, tokens=tokens[number])
        found[name] = params, island


def together(
    folder: Any, steps: int, tokens: Any, islands: int = 3, **how: Any
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    threads = [
        threading.Thread(
            target=live, args=(folder, i, steps, tokens, found), kwargs=how
        )
        for i in range(islands)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == islands
    return found


def records(folder: Any) -> list[dict[str, Any]]:
    store = open_store(f"folder:{folder}")
    return [log.read(store, v)[0] for v in range(log.newest(store) + 1)]


def emulated(steps: int, merge: Any, tokens: Any) -> Any:
    """The same by one program, with the table of presence that the log is."""
    tx = relaxjax.decoupled_diloco(
        optax.sgd(RATE), "data", sync_every=H, fragments=2, merge=merge, tokens=[tokens]
    )

    def run(target):
        params, state = PARAMS, tx.init(PARAMS)
        goal = {"a": target[:8], "b": target[8:]}
        for _ in range(steps):
            g = jax.tree.map(lambda x, t: x - t, params, goal)
            updates, state = tx.update(g, state, params)
            params = optax.apply_updates(params, updates)
        return params

    return jax.vmap(run, axis_name="data")(TARGETS)


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("merge", ["rda", "mean"])
def test_rounds_equal_the_emulated_transformation(tmp_path, merge):
    """To rounding; the islands among themselves to the bit where all has merged."""
    tokens, steps = [8, 2, 5], 4 * H
    found = together(tmp_path, steps, tokens, quorum=3, merge=merge)
    expected = emulated(steps, merge, tokens)
    for i in range(3):
        params, island = found[f"island{i}"]
        assert island.version == steps // (H // 2)
        for name, x in params.items():
            np.testing.assert_allclose(x, expected[name][i], rtol=1e-5, atol=1e-6)
    lines = records(tmp_path)
    assert [len(r["contributions"]) for r in lines] == [0] + [3] * 8
    weights = [c["weight"] for c in lines[-1]["contributions"]]
    np.testing.assert_allclose(weights, [H * c * c for c in tokens])
    # The last merge is of b.
    for i in (1, 2):
        same = found["island0"][0]["b"], found[f"island{i}"][0]["b"]
        np.testing.assert_array_equal(*same)


@pytest.mark.long
def test_decoupled_islands_end_near_the_common_optimum(tmp_path):
    found = together(tmp_path, 60, [1, 1, 1], mode="decoupled", grace=0.02)
    lines = records(tmp_path)
    assert len(lines) > 30
    for version, record in enumerate(lines[1:], 1):
        assert record["fragment"] == (version - 1) % 2
    mean = TARGETS.mean(axis=0)
    for params, _ in found.values():
        far = np.concatenate([params["a"], params["b"]]) - mean
        assert np.linalg.norm(far) < np.linalg.norm(mean) + 3


def test_an_older_incarnation_is_refused_by_name(tmp_path):
    how: dict[str, Any] = RUN | FAST | {"mode": "decoupled"}
    one = islands.join(PARAMS, f"folder:{tmp_path}", "twin", **how)
    two = islands.join(PARAMS, f"folder:{tmp_path}", "twin", **how)
    assert (one.incarnation, two.incarnation) == (1, 2)
    assert one.seed != two.seed
    mail: Any = one._mail
    mail._thread.join()
    with pytest.raises(islands.Superseded, match="incarnation 2 of 'twin'"):
        one.exchange(one.params)
    two.exchange(two.params)
    one.close()
    two.close()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sync_every": 8}, "sync_every is 8 here and 4 there"),
        ({"seed": 7}, "seed is 7 here and 0 there"),
        ({"params": jax.tree.map(jnp.bfloat16, PARAMS)}, "params have .*bfloat16.* he"),
        (
            {"merge": "mean", "quorum": 2},
            r"merge is mean here and clipped\(by='all', cap=2.0\) there; quorum",
        ),
        ({"params": {"a": jnp.zeros(9)} | PARAMS}, None),
        ({"params": {"a": jnp.zeros(7), "b": jnp.zeros(4)}}, "params have .*7.* here"),
    ],
)
def test_another_run_or_model_is_refused(tmp_path, change, message):
    where = f"folder:{tmp_path}"
    islands.join(PARAMS, where, "first", **RUN, **FAST).close()
    how: dict[str, Any] = RUN | FAST | change
    params = how.pop("params", PARAMS)
    if message is None:
        islands.join(params, where, "second", **how).close()
        return
    with pytest.raises(ValueError, match=message):
        islands.join(params, where, "second", **how)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"carrier": "nfs:/x"}, "must be folder:DIR"),
        ({"name": "a b"}, "letters, digits"),
        ({"sync_every": 5}, "multiple of fragments=2, such as 6"),
        ({"mode": "sync"}, "one of decoupled, rounds"),
        ({"merge": "sum"}, "one of mean, rda"),
        ({"quorum": 0}, "quorum=0"),
        ({"grace": -1.0}, "grace=-1.0"),
        ({"outer_rate": 10**400}, "above 0, both of them finite in float32"),
        ({"limit": 10**400}, "times the median"),
        ({"outer_momentum": 1.0}, "momentum=1.0"),
        ({"poll": 0.0}, "poll=0.0"),
        ({"pace": 0.0}, "pace=0.0"),
        ({"seed": 1.5}, "seed=1.5 must be a whole number"),
        ({"keep": "no"}, "keep='no' must be True or False"),
        ({"params": {"n": jnp.zeros(3, int)}, "fragments": 1}, "n is int32"),
    ],
)
def test_bad_arguments(tmp_path, how, message):
    how = {"carrier": f"folder:{tmp_path}", "name": "a", **RUN, **FAST, **how}
    with pytest.raises(ValueError, match=message):
        islands.join(how.pop("params", PARAMS), **how).close()


@pytest.mark.parametrize("everywhere", [False, True])
def test_where_jax_refuses_transfers(tmp_path, capsys, everywhere):
    """What islands merge is on the host, in the training thread and beside it."""
    step = jax.jit(lambda x: x + x.dtype.type(1))
    params = {"x": jnp.zeros(2), "b": jnp.ones(3, jnp.bfloat16)}
    how: dict[str, Any] = RUN | FAST
    guard = jax.transfer_guard("disallow")
    if everywhere:
        jax.config.update("jax_transfer_guard", "disallow")
    try:
        with nullcontext() if everywhere else guard:
            place = f"folder:{tmp_path}"
            with islands.join(params, place, "a", **how) as island:
                for _ in range(4 * H):
                    params = jax.tree.map(step, params)
                    params = island.exchange(params)
    finally:
        jax.config.update("jax_transfer_guard", None)
    assert "INVALID_ARGUMENT" not in capsys.readouterr().err
    assert island.version > 0


@pytest.mark.parametrize("variable", ["SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX"])
def test_a_task_of_an_array_is_named_by_its_number(tmp_path, monkeypatch, variable):
    place = f"folder:{tmp_path}"
    with pytest.raises(ValueError, match="name is missing"):
        islands.join(PARAMS, place, **RUN, **FAST)
    monkeypatch.setenv(variable, "7")
    with islands.join(PARAMS, place, **RUN, **FAST) as island:
        assert island.name == "island-7"
    assert islands.names(1) == ["island-7"]
    assert islands.names(2) == ["island-7-0", "island-7-1"]
    monkeypatch.setenv("RELAXJAX_ISLAND", "mine")
    with islands.join(PARAMS, place, **RUN, **FAST) as island:
        assert island.name == "mine"


def test_a_full_disk_is_said_and_training_goes_on(tmp_path, capfd, monkeypatch):
    how: dict[str, Any] = RUN | FAST | {"mode": "decoupled"}
    said: list[str] = []
    with islands.join(PARAMS, f"folder:{tmp_path}", "a", **how) as island:
        heard = threading.Event()
        post: Any = island._mail

        def hear(words: str) -> None:
            said.append(words)
            heard.set()

        post._voice._write = hear

        def full(*_: Any) -> Any:
            raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path))

        store = post._channel._store
        monkeypatch.setattr(store, "create", full)
        params = island.params
        for _ in range(H):
            params = island.exchange(train(params, TARGETS[0]))
        heard.wait()
        assert island.version == 0
        assert "No space left on device; training goes on" in said[0]
        monkeypatch.undo()
        post.wait_for(1)
        params = island.exchange(train(params, TARGETS[0]))
        assert island.version >= 1
    assert any("works again" in words for words in said)
    assert sum("No space" in words for words in said) == 1


def test_params_are_as_committed_as_they_were(tmp_path):
    """Else the step after the first merge would be compiled again."""
    device = jax.devices()[0]
    params = {"a": jnp.zeros(8), "b": jax.device_put(jnp.zeros(4), device)}
    how: dict[str, Any] = RUN | FAST | {"fragments": 1}
    with islands.join(params, f"folder:{tmp_path}", "a", **how) as island:
        before = after = island.params
        for _ in range(H):
            after = island.exchange(after, tokens=1)
        assert island.version == 1
        for model in (before, after):
            assert {k: x.committed for k, x in model.items()} == {"a": False, "b": True}


def test_what_takes_long_is_not_lost_where_nobody_merges(tmp_path):
    """bfloat16 params travel as they are, and the anchor stays in float32."""
    params = {"a": jnp.ones(8, jnp.bfloat16), "b": jnp.ones(4)}
    how: dict[str, Any] = RUN | FAST | {"outer_rate": 1.0, "outer_momentum": 0.0}
    with islands.join(params, f"folder:{tmp_path}", "a", **how) as island:
        assert island.params["a"].dtype == jnp.bfloat16
        after = jax.tree.map(lambda x: x + 1, island.params)
        for _ in range(H):
            after = island.exchange(after)
        np.testing.assert_array_equal(np.float32(after["a"]), np.full(8, 2.0))
        assert island.dropped == 0


def test_a_disk_that_is_full_before_the_start_is_named(tmp_path, monkeypatch):
    """Nothing half-written stays, and the island joins when there is room."""
    where, write, left = f"folder:{tmp_path}/run", Path.open, [0]

    def full(path: Path, mode: str = "r", **more: Any) -> Any:
        left[0] -= "x" in mode
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return write(path, mode, **more)

    for count in (0, 16, 17, 18, 20):  # the probe; run.json, the member, the state
        left[0] = count
        monkeypatch.setattr(Path, "open", full)
        said = r"'late' cannot join .*: No space left"
        with pytest.raises(OSError, match=said) as found:
            islands.join(PARAMS, where, "late", **RUN, **FAST)
        assert found.value.errno == errno.ENOSPC
        assert not list(tmp_path.glob("run/tmp/*"))
    monkeypatch.undo()
    with islands.join(PARAMS, where, "late", **RUN, **FAST) as island:
        assert island.version == 0


def test_other_versions_of_packages_are_told_and_join(tmp_path, capfd, monkeypatch):
    islands.join(PARAMS, f"folder:{tmp_path}", "a", **RUN, **FAST).close()
    assert "began with" not in capfd.readouterr().err
    monkeypatch.setattr(jax, "__version__", "0.9")
    islands.join(PARAMS, f"folder:{tmp_path}", "b", **RUN, **FAST).close()
    said = capfd.readouterr().err
    assert "and this island has 0.9: a replay may differ by rounding" in said
    assert said.count("began with") == 1
    assert Agreed.read(open_store(f"folder:{tmp_path}")).settings.fragments == 2


def test_members_and_half_written_files_do_not_pile_up(tmp_path):
    store = Folder(tmp_path)
    for _ in range(members.KEPT + 9):
        members.enter(store, "a", {})
    members.enter(store, "b", {})
    names = store.names(members.FOLDER)
    assert len(names) == members.KEPT + 1
    assert members.newest(store) == {"a": members.KEPT + 9, "b": 1}
    for name, age in (("old", 7200), ("new", 60)):
        path = tmp_path / "tmp" / name
        path.write_bytes(b"half")
        os.utime(path, (path.stat().st_mtime - age,) * 2)
    (tmp_path / "tmp" / "folder").mkdir()
    Folder(tmp_path)
    assert sorted(os.listdir(tmp_path / "tmp")) == ["folder", "new"]


@pytest.mark.parametrize("count", [1, 2])
def test_the_last_contributions_go_out_before_islands_leave(tmp_path, count):
    """Whoever joins next has them: nobody's last H steps are lost."""
    how: dict[str, Any] = RUN | FAST | {"mode": "decoupled", "fragments": 1}
    how |= {"outer_rate": 1.0, "outer_momentum": 0.0, "merge": "mean"}
    there = [
        islands.join(PARAMS, f"folder:{tmp_path}", f"island{i}", **how)
        for i in range(count)
    ]
    for number, island in enumerate(there):
        params = jax.tree.map(lambda x, i=number: x + 2.0 * i + 1, PARAMS)
        for _ in range(H):
            params = island.exchange(params)
    for island in there:
        island.close()
    with islands.join(PARAMS, f"folder:{tmp_path}", "later", **how) as later:
        assert later.version == 1
        np.testing.assert_allclose(later.params["a"], np.full(8, count), rtol=1e-6)


def test_who_is_slow_does_not_wait_for_a_quorum_that_has_left(tmp_path, capfd):
    """Three islands, and the two that are fast end after their steps."""
    ended: dict[int, int] = {}
    ready = threading.Barrier(3)
    how: dict[str, Any] = RUN | {"quorum": 2}

    def member(number: int, steps: int) -> None:
        name = f"island{number}"
        knobs: dict[str, Any] = how | {"grace": 0.05, "poll": 0.002, "lost_after": 0.3}
        with islands.join(PARAMS, f"folder:{tmp_path}", name, **knobs) as island:
            params = island.params
            ready.wait()
            for _ in range(steps):
                params = island.exchange(train(params, TARGETS[number]))
        ended[number] = island.version

    steps = (8, 8, 40)
    threads = [
        threading.Thread(target=member, args=item, daemon=True)
        for item in enumerate(steps)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert set(ended) == {0, 1, 2}
    assert (
        "[island2] too many islands have left for the quorum" in capfd.readouterr().err
    )


@pytest.mark.parametrize("kind", [jnp.float32, jnp.float16])
def test_params_of_another_dtype_than_joined_are_refused(kind, tmp_path):
    """Such as bfloat16 ones that a step in float32 has widened."""
    params = {"w": jnp.zeros(3, jnp.bfloat16)}
    how: dict[str, Any] = {"sync_every": 2, "fragments": 1}
    with islands.join(params, f"folder:{tmp_path}", "a", **how) as island:
        island.exchange(params)
        with pytest.raises(
            ValueError, match=r"w is float.*\[3\], and was bfloat16\[3\]"
        ):
            island.exchange({"w": jnp.zeros(3, kind)})


def test_doubles_are_merged_as_doubles_inside_of_a_context(tmp_path):
    """The thread that merges is not in the context of the thread that trains."""
    how: dict[str, Any] = RUN | FAST | EACH_STEP | {"keep": True}
    with jax.enable_x64(True):
        params = {"w": jnp.arange(3.0)}
        with islands.join(params, f"folder:{tmp_path}", "a", **how) as island:
            for _ in range(3):
                params = island.exchange({"w": params["w"] + 1e-12})
        assert params["w"].dtype == np.float64
        np.testing.assert_allclose(params["w"] - np.arange(3), 3e-12, rtol=1e-3)
    assert island.merged == 3
    said = CliRunner().invoke(app, ["islands", "replay", f"folder:{tmp_path}"])
    assert "3 equal to the bit" in " ".join(said.output.split()), said.output


def test_two_leaves_of_one_name_are_refused(tmp_path):
    params = {"a/b": jnp.zeros(2), "a": {"b": jnp.ones(2)}}
    with pytest.raises(ValueError, match="two leaves are called 'a/b'"):
        islands.join(params, f"folder:{tmp_path}", "a", sync_every=1, fragments=1)


def test_arrays_of_numpy_join_in_the_dtype_that_jax_has(tmp_path):
    how: dict[str, Any] = RUN | FAST | EACH_STEP
    with islands.join({"w": np.zeros(3)}, f"folder:{tmp_path}", "a", **how) as island:
        params = island.exchange({"w": island.params["w"] + 1.0})
        np.testing.assert_array_equal(params["w"], np.ones(3))
    assert island.merged == 1


def test_who_has_left_exchanges_nothing(tmp_path):
    how: dict[str, Any] = RUN | FAST | EACH_STEP
    with islands.join(PARAMS, f"folder:{tmp_path}", "a", **how) as island:
        params = island.exchange(island.params)
    with pytest.raises(RuntimeError, match="this island has left the run"):
        island.exchange(params)

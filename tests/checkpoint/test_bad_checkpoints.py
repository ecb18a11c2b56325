"""Checkpoints that are broken, or of another run: errors that say what to do."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import emulate
from relaxjax.checkpoint import Checkpoints, plan_of
from tests.checkpoint import training

MESH = emulate(2)


def saved(folder: Path, **how: Any) -> dict[str, Any]:
    """A state of 2 workers; checkpoints of steps 1 and 2."""
    state = {"x": jnp.arange(8.0).reshape(2, 4), "n": 5}
    with Checkpoints(folder, MESH, **how) as checkpoints:
        checkpoints.save(1, state)
        checkpoints.save(2, state)
    return state


def restored(folder: Path, state: Any, mesh: Any = MESH, **how: Any) -> Any:
    with Checkpoints(folder, mesh, **how) as checkpoints:
        return checkpoints.restore(state)


def test_every_changed_byte_is_found(tmp_path):
    state = saved(tmp_path)
    for path in (tmp_path / "2" / "state").glob("*[.]*"):
        whole = path.read_bytes()
        for place in {*range(0, len(whole), max(1, len(whole) // 40)), len(whole) - 1}:
            changed = bytearray(whole)
            changed[place] ^= 1
            path.write_bytes(bytes(changed))
            with pytest.raises(ValueError, match=r"not as it was written.*remove"):
                restored(tmp_path, state)
        path.write_bytes(whole)
    assert restored(tmp_path, state)[0] == 2


def test_a_folder_of_another_steps_name_is_found(tmp_path):
    """Renamed, or swapped by a copy by hand: it would go on at another step."""
    state = saved(tmp_path)
    (tmp_path / "2").rename(tmp_path / "8")
    with pytest.raises(ValueError, match="the checkpoint of step 2, under another"):
        restored(tmp_path, state)
    (tmp_path / "1").rename(tmp_path / "2")
    (tmp_path / "8").rename(tmp_path / "1")
    with pytest.raises(ValueError, match=r"the checkpoint of step 1.*the name 1"):
        restored(tmp_path, state)


def test_what_is_cut_off_or_missing_is_found(tmp_path):
    state = saved(tmp_path)
    data, index = (tmp_path / "2" / "state" / n for n in ("data-0.bin", "index.json"))
    whole = data.read_bytes()
    for wrong in (whole[:-1], whole + b"0", b""):
        data.write_bytes(wrong)
        with pytest.raises(ValueError, match=r"data-0\.bin is not as it was written"):
            restored(tmp_path, state)
    data.unlink()
    with pytest.raises(ValueError, match="missing"):
        restored(tmp_path, state)
    index.unlink()
    with pytest.raises(ValueError, match=r"no index\.json"):
        restored(tmp_path, state)
    with Checkpoints(tmp_path, MESH) as checkpoints:
        assert checkpoints.restore(state, step=1)[0] == 1


def run_of(name: str) -> tuple[Any, dict[str, str]]:
    tx, mesh = training.relaxed(name, 4), emulate(4)
    params, opt_state = training.fresh(tx, mesh)
    plan = plan_of(tx, relaxjax.consensus(params), mesh)
    return {"params": params, "opt_state": opt_state}, plan


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ("diloco", "'opt_state/.*' was .* and is absent"),
        ("all_reduce@ring", "the configuration of the transformation .* was"),
    ],
)
def test_another_relaxation_is_named(other, message, tmp_path):
    state, plan = run_of("all_reduce")
    with Checkpoints(tmp_path, emulate(4), plan=plan) as checkpoints:
        checkpoints.save(1, state)
    different, other_plan = run_of(other)
    how = {"plan": other_plan} if "configuration" in message else {}
    with pytest.raises(ValueError, match=message):
        restored(tmp_path, different, emulate(4), **how)
    assert restored(tmp_path, state, emulate(4), plan=plan)[0] == 1


def test_another_model_or_plan_is_named(tmp_path):
    state = saved(tmp_path, plan={"the data": "digits"})
    for wrong, message in (
        (
            {**state, "x": jnp.zeros((2, 5))},
            r"'x' was float32\[4\] and is float32\[5\]",
        ),
        ({**state, "x": jnp.zeros((2, 4), int)}, "'x' was float32"),
        ({**state, "y": jnp.zeros(2)}, "'y' was absent"),
        ({"x": state["x"]}, "'n' is in it, and not"),
        ({**state, "m": 3}, "'m' is not in it"),
        ({**state, "x": [state["x"]]}, "'x' was .* is absent"),
    ):
        with pytest.raises(ValueError, match=message):
            restored(tmp_path, wrong)
    with pytest.raises(ValueError, match="the data was digits and is chars"):
        restored(tmp_path, state, plan={"the data": "chars"})
    assert restored(tmp_path, state, plan={"the order": "tac"})[0] == 2


def test_what_states_hold_beside_arrays_counts(tmp_path):
    """Phases that end at another step are another run."""

    def state(end):
        tx = relaxjax.before_step(optax.sgd(0.1), end)
        return relaxjax.init(tx, jnp.zeros(3), MESH, reduced_in_step=True)

    with Checkpoints(tmp_path, MESH) as checkpoints:
        checkpoints.save(1, state(5))
    with pytest.raises(ValueError, match="what the states hold beside arrays"):
        restored(tmp_path, state(6))


def test_a_resize_that_a_state_forbids_is_refused(tmp_path):
    tx = relaxjax.eager_diloco(optax.sgd(0.1), "data", 2)
    states = [
        relaxjax.init(tx, jnp.zeros(3), emulate(n), reduced_in_step=True)
        for n in (2, 1)
    ]
    with Checkpoints(tmp_path, MESH) as checkpoints:
        checkpoints.save(1, states[0])
    with pytest.raises(ValueError, match="EagerDilocoState"):
        restored(tmp_path, states[1], emulate(1))


def test_bad_arguments(tmp_path):
    state = {"x": jnp.ones(2)}
    with pytest.raises(ValueError, match="every=0"):
        Checkpoints(tmp_path, MESH, every=0)
    with pytest.raises(ValueError, match="keep=0"):
        Checkpoints(tmp_path, MESH, keep=0)
    with pytest.raises(TypeError, match="not a mesh"):
        Checkpoints(tmp_path, 4)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"cannot write to the folder .*name another"):
        Checkpoints(tmp_path / "file" / "runs", MESH)
    with Checkpoints(tmp_path / "a", MESH) as checkpoints:
        with pytest.raises(ValueError, match="no checkpoint of step 3"):
            checkpoints.restore(state, step=3)
        with pytest.raises(ValueError, match="of 3 workers and the mesh has 2"):
            checkpoints.save(1, {"x": jnp.ones(3)})
        with pytest.raises(ValueError, match="all arrays need a leading axis"):
            checkpoints.save(1, {**state, "y": jnp.float32(1)})


def test_what_cannot_be_stored_is_named(tmp_path):
    with (
        Checkpoints(tmp_path, MESH) as checkpoints,
        pytest.raises(TypeError, match="'f' is a PjitFunction"),
    ):
        checkpoints.save(1, {"x": jnp.ones(2), "f": jnp.sin})


FIELDS = np.dtype([("epoch", np.int32), ("loss", np.float32)])


@pytest.mark.parametrize(
    ("loader", "what"),
    [
        (np.array(["shard-3", None], dtype=object), "ndarray of object"),
        (np.array([(1, 2.0)], dtype=FIELDS), "ndarray of "),
        (np.array([(1, 2.0)], dtype=FIELDS)[0], "void of "),
        (
            np.ma.masked_array([1, 2, 3], mask=[False, True, False]),
            "MaskedArray of int64",
        ),
    ],
)
def test_arrays_that_would_not_come_back_are_refused(loader, what, tmp_path):
    state = saved(tmp_path)
    with Checkpoints(tmp_path, MESH) as checkpoints:
        with pytest.raises(TypeError, match=f"checkpoint: 'loader' is a {what}"):
            checkpoints.save(3, {**state, "loader": loader})
        assert checkpoints.steps == [1, 2]


@pytest.mark.parametrize(
    "x",
    [
        np.array(["ab", "c"]),
        np.array([b"ab", b"c"]),
        np.array(["2026-11-29", "NaT"], "datetime64[s]"),
        np.arange(3, dtype=">i4"),
        np.ones(2, jnp.bfloat16),
        np.array([True, False]),
        np.float16(2),
        np.datetime64("2026-11-29T10"),
    ],
    ids=lambda x: str(x.dtype),
)
def test_arrays_of_the_loop_come_back_as_they_were(x, tmp_path):
    state = {"x": jnp.ones(2), "loop": x}
    with Checkpoints(tmp_path, MESH) as checkpoints:
        checkpoints.save(1, state)
        _, found = checkpoints.restore(state)
    assert type(found["loop"]) is type(x)
    assert found["loop"].dtype == x.dtype
    np.testing.assert_array_equal(found["loop"], x)


KILLED = """
import os, signal, sys
import jax.numpy as jnp
from relaxjax import emulate
from relaxjax.checkpoint import Checkpoints, _files

whole = _files.digest
calls = []

def killed(x):
    calls.append(x)
    if len(calls) > {pieces}:
        os.kill(os.getpid(), signal.SIGKILL)
    return whole(x)

state = {{"x": jnp.arange(8.0).reshape(2, 4), "n": 5}}
checkpoints = Checkpoints(sys.argv[1], emulate(2))
checkpoints.save(3, state)
checkpoints.wait()
_files.digest = killed
{patch}
checkpoints.save(4, {{**state, "n": 6}})
checkpoints.wait()
print("still here")
"""
AFTER_DATA = """
def cut(path, body):
    path.write_text("half of it")
    os.kill(os.getpid(), signal.SIGKILL)

_files._write_index = cut
"""


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize(
    "script",
    [
        KILLED.format(pieces=1, patch=""),
        KILLED.format(pieces=9, patch=AFTER_DATA),
    ],
    ids=["before it writes", "in the middle of the index"],
)
def test_a_kill_in_a_save_leaves_the_one_before_whole(script, tmp_path):
    ended = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    left = {path.name for path in tmp_path.iterdir()} - {"3"}
    assert left  # part of the save is there
    state = {"x": jnp.zeros((2, 4)), "n": 0}
    with Checkpoints(tmp_path, MESH) as checkpoints:
        step, tree = checkpoints.restore(state)
        assert (step, tree["n"]) == (3, 5)
        np.testing.assert_array_equal(tree["x"], np.arange(8.0).reshape(2, 4))
        assert checkpoints.save(4, tree)
    assert restored(tmp_path, state)[0] == 4
    assert {path.name for path in tmp_path.iterdir()} == {"3", "4"}


@pytest.mark.parametrize("kind", ["relaxjax-tmp-5f1e-1", "orbax-checkpoint-tmp"])
def test_the_next_save_removes_what_another_left_behind(kind, tmp_path):
    state = saved(tmp_path)
    left = tmp_path / f"9.{kind}"
    (left / "state").mkdir(parents=True)
    (left / "state" / "index.json").write_text("{")
    with Checkpoints(tmp_path, MESH) as checkpoints:
        assert checkpoints.restore(state)[0] == 2
        assert checkpoints.save(3, state)
    assert not left.exists()

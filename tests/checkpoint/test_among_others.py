"""Folders, plans and processes that hold what is not of this run alone."""

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import emulate
from relaxjax.checkpoint import Checkpoints, plan_of, restore_params
from relaxjax.checkpoint._plan import require_same_run

MESH = emulate(2)
TX = optax.chain(relaxjax.all_reduce("data"), optax.sgd(0.1))


def state(value: float) -> dict[str, Any]:
    return {"p": relaxjax.to_workers(jnp.full(3, value), MESH)}


def value(tree: dict[str, Any]) -> float:
    return float(tree["p"][0, 0])


def test_a_checkpoint_that_is_a_link_goes_without_its_target(tmp_path):
    """As where somebody moved a large one to another disk."""
    here, other = tmp_path / "run", tmp_path / "other"
    with Checkpoints(here, MESH, keep=2) as saves:
        assert saves.save(1, state(1))
    (here / "1").rename(other)
    (here / "1").symlink_to(other)
    with Checkpoints(here, MESH, keep=2) as saves:
        assert value(saves.restore(state(0))[1]) == 1
        for step in (2, 3):
            assert saves.save(step, state(step))
    assert {x for x in os.listdir(here) if x[0] != "."} == {"2", "3"}
    assert other.is_dir()


def test_folders_of_another_library_are_not_removed(tmp_path):
    """As Orbax's manager leaves them, which calls an item as one likes."""
    for step in (100, 200, 300, 400):
        (tmp_path / str(step) / "state").mkdir(parents=True)
        (tmp_path / str(step) / "state" / "_METADATA").touch()
    with Checkpoints(tmp_path, MESH, keep=2) as saves:
        for step in (500, 600, 700):
            assert saves.save(step, state(step))
    names = {x for x in os.listdir(tmp_path) if x[0] != "."}
    assert names == {"100", "200", "300", "400", "600", "700"}


@pytest.mark.parametrize("timeout", [0, -1, -1e9, -np.inf])
def test_a_wait_that_is_over_looks_once(timeout, tmp_path):
    with Checkpoints(tmp_path, MESH) as saves:
        assert saves.save(3, state(3))
    with Checkpoints(tmp_path, MESH, read_only=True) as reader:
        reader.wait(3, timeout=timeout)
        reader.wait(3, timeout=np.inf)
        with pytest.raises(TimeoutError, match="no checkpoint of step 4"):
            reader.wait(4, timeout=timeout)
        with pytest.raises(ValueError, match="timeout=nan must be a number"):
            reader.wait(4, timeout=np.nan)


@pytest.mark.parametrize(
    "line", ["the version of the data", "data digest", "digest", "the mesh of hosts"]
)
def test_a_users_own_line_is_compared_whatever_its_name(line, tmp_path):
    params = jnp.zeros(3)

    def plan(text: str) -> dict[str, str]:
        return {**plan_of(TX, params, MESH), line: text}

    with Checkpoints(tmp_path, MESH, plan=plan("1")) as saves:
        assert saves.save(1, state(1))
    with Checkpoints(tmp_path, MESH, plan=plan("1")) as saves:
        assert saves.restore(state(0))[0] == 1
    other = Checkpoints(tmp_path, MESH, plan=plan("2"))
    with other, pytest.raises(ValueError, match=f"{line} was 1 and is 2"):
        other.restore(state(0))

    meshes = [{"the mesh": text, line: text} for text in "12"]
    with pytest.raises(ValueError, match=f"{line} was 1 and is 2"):
        require_same_run(*meshes)


@dataclasses.dataclass
class Layer:
    w: Any
    act: Callable[..., Any]


jax.tree_util.register_dataclass(Layer, ["w"], ["act"])


def test_a_function_in_a_tree_has_no_address_in_its_plan(tmp_path):
    """Each process has it at another place."""
    params = Layer(jnp.zeros(3), jax.nn.gelu)
    assert "0x" in str(jax.tree.structure(params))
    plan = plan_of(TX, params, MESH)
    assert "0x" not in plan["the tree structure"]
    older = {"the tree structure": str(jax.tree.structure(params))}
    with Checkpoints(tmp_path, MESH, plan={**plan, **older}) as saves:
        assert saves.save(1, state(1))
    with Checkpoints(tmp_path, MESH, plan=plan) as saves:
        assert saves.restore(state(0))[0] == 1


def test_doubles_stay_doubles_for_readers_without_them(tmp_path):
    with jax.enable_x64(True):
        params = {"w": jnp.array([1 / 3, 1e300]), "n": jnp.array(2**40 + 1)}
        with Checkpoints(tmp_path, MESH) as saves:
            assert saves.save(1, {"params": relaxjax.to_workers(params, MESH)})
    found = restore_params(tmp_path)
    np.testing.assert_array_equal(found["w"], np.array([1 / 3, 1e300]))
    assert found["n"] == 2**40 + 1
    assert (found["w"].dtype, found["n"].dtype) == (np.float64, np.int64)


FORKS = """
import os, sys
import relaxjax
from relaxjax.checkpoint import Checkpoints

saves = Checkpoints(sys.argv[1], relaxjax.emulate(2))
if os.fork():
    os._exit(9)  # as if it were killed
print("forked", flush=True)
sys.stdin.read()
os._exit(0)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_a_fork_does_not_hold_the_folder(tmp_path):
    """As a loader's process that outlives the run."""
    command = [sys.executable, "-W", "ignore", "-c", FORKS, str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as run:
        assert run.stdout
        assert run.stdout.readline() == "forked\n"
        assert run.wait(60) == 9
        with Checkpoints(tmp_path, MESH) as saves:
            assert saves.save(1, state(1))

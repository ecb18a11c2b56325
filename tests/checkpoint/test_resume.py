"""A resumed run is the uninterrupted one, to the bit."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import emulate
from relaxjax.checkpoint import Checkpoints
from relaxjax.checkpoint._snapshot import snapshot
from tests import helpers
from tests.checkpoint import training

FAST = (
    "all_reduce+top_k+ef14",
    "diloco",
    "gossip+sign",
    "parameter_server",
    "post_local_sgd",  # changes its phase after the checkpoint
    "power_sgd",  # before it
    "zero_one_adam",
)
DATA = helpers.batches(training.STEPS, rows=16)


def tree_of(state: Any, step: int) -> dict[str, Any]:
    return {"params": state[0], "opt_state": state[1], "batches": step}


def resumed(
    tx: optax.GradientTransformation, folder: Any, meshes: tuple[Any, Any]
) -> Any:
    """Trained for 3 steps on one mesh, and to the end on another."""
    begin = {mesh: tree_of(training.fresh(tx, mesh), 0) for mesh in meshes}
    first, second = meshes
    with Checkpoints(folder, first) as checkpoints:
        tree = begin[first]
        state = training.trained(
            tx, (tree["params"], tree["opt_state"]), first, DATA[:3], donate=True
        )
        checkpoints.save(3, tree_of(state, 3))
        # The checkpoint is of this state, even if its memory is reused after it.
        training.trained(tx, state, first, DATA[3:], donate=True)
    with Checkpoints(folder, second) as checkpoints:
        step, tree = checkpoints.restore(begin[second])
    assert step == tree["batches"] == 3
    return training.trained(tx, (tree["params"], tree["opt_state"]), second, DATA[3:])


@pytest.mark.long
@pytest.mark.few(2)
@pytest.mark.parametrize(
    "name",
    [
        name if name in FAST else pytest.param(name, marks=pytest.mark.slow)
        for name in training.NAMES
    ],
)
def test_every_relaxation_goes_on_to_the_bit(name, tmp_path):
    tx, mesh = training.relaxed(name, 4), emulate(4)
    whole = training.trained(tx, training.fresh(tx, mesh), mesh, DATA)
    assert training.bits(resumed(tx, tmp_path, (mesh, mesh))) == training.bits(whole)


@pytest.mark.slow
@pytest.mark.parametrize("name", training.NAMES)
def test_every_relaxation_goes_on_to_the_bit_on_devices(name, tmp_path):
    tx, mesh = training.relaxed(name, 4), helpers.mesh_of(4)
    whole = training.trained(tx, training.fresh(tx, mesh), mesh, DATA)
    assert training.bits(resumed(tx, tmp_path, (mesh, mesh))) == training.bits(whole)


@pytest.mark.long
@pytest.mark.few(2)
@pytest.mark.parametrize("to_devices", [True, False])
def test_devices_and_emulation_read_each_others(to_devices, tmp_path):
    tx = training.relaxed("gossip+sign", 4)
    meshes: tuple[Any, Any] = emulate(4), helpers.mesh_of(4)
    if not to_devices:
        meshes = meshes[1], meshes[0]
    whole = training.trained(tx, training.fresh(tx, meshes[1]), meshes[1], DATA)
    helpers.assert_close(resumed(tx, tmp_path, meshes), whole, 1e-5)


def test_a_snapshot_has_memory_of_its_own():
    """On CPU a view would pass for as long as JAX leaves donated memory alone."""
    for mesh in (emulate(2), helpers.mesh_of(2)):
        x = relaxjax.to_workers(jnp.arange(64.0), mesh)
        copies = snapshot({"x": x}, (0,)).bytes
        views = [np.asarray(shard.data) for shard in x.addressable_shards]
        assert len(copies) == 2
        for copy in copies.values():
            assert not any(np.shares_memory(copy, view) for view in views)


def odd_values() -> dict[str, Any]:
    """Every kind of leaf; NaNs with a payload, minus zero, subnormals."""
    bits = np.array([[0x7FC00001, 0x80000000, 1], [0x7FC00001, 0, 1]], np.uint32)
    return {
        "float": jnp.asarray(bits.view(np.float32)),
        "bf16": jnp.asarray([[1.5], [-0.0]], jnp.bfloat16),
        "fp8": jnp.asarray([[1.5], [0.1]], jnp.float8_e4m3fn),
        "int": jnp.asarray([[7, -7]] * 2, jnp.int8),
        "bool": jnp.asarray([True, False]),
        "none": jnp.zeros((2, 0)),
        "complex": jnp.asarray([[1j], [2]]),
        "own": relaxjax.to_workers(jax.random.key(1), emulate(2)),
        "rbg": relaxjax.to_workers(jax.random.key(1, impl="rbg"), emulate(2)),
        "keys": relaxjax.to_workers(jax.random.split(jax.random.key(1)), emulate(2)),
        "numbers": [3, 0.1, True, "text", np.float32(0.1), np.arange(3)],
    }


def test_every_kind_of_leaf_comes_back_to_the_bit(tmp_path):
    state = odd_values()
    none = jax.tree.map(
        lambda x: jnp.zeros_like(x) if isinstance(x, jax.Array) else x,
        {k: x for k, x in state.items() if k not in ("own", "rbg", "keys")},
    )
    like = {**state, **none, "numbers": [0, 0.0, False, "", np.float32(0), np.zeros(3)]}
    with Checkpoints(tmp_path, emulate(2)) as checkpoints:
        checkpoints.save(1, state)
        _, back = checkpoints.restore(like)
    *plain, vector = state.pop("numbers")
    *plain_back, vector_back = back.pop("numbers")
    assert plain == plain_back
    assert list(map(type, plain)) == list(map(type, plain_back))
    assert vector.tobytes() == vector_back.tobytes()
    assert training.bits(state) == training.bits(back)
    assert jax.tree.structure(state) == jax.tree.structure(back)


def test_what_is_equal_is_stored_once(tmp_path):
    """Equal by bits: 0.0 is not -0.0, and a NaN is itself."""
    size = 1000
    rows = np.zeros((8, size), np.float32)
    state = {
        "equal": jnp.asarray(rows + np.nan),
        "own": jnp.asarray(rows + np.arange(8)[:, None]),
        "pairs": jnp.asarray(rows + np.arange(8)[:, None] // 4 + 100),
        "zeros": jnp.asarray(np.where(np.arange(8)[:, None] < 4, -0.0, 50.0) + rows),
    }
    state["zeros"] = state["zeros"].at[0].set(-0.0).at[1].set(0.0)
    with Checkpoints(tmp_path, emulate(8)) as checkpoints:
        checkpoints.save(1, state)
    stored = (tmp_path / "1" / "state" / "data-0.bin").stat().st_size
    distinct = 1 + 8 + 2 + 3 - 1  # "own" and "zeros" share a row of 0.0
    assert stored == distinct * size * 4


def test_steps_that_are_due_are_saved_and_the_newest_kept(tmp_path):
    state = {"x": jnp.ones(2), "n": 0}
    with Checkpoints(tmp_path, emulate(2), every=2, keep=2) as checkpoints:
        assert checkpoints.restore(state) == (0, state)
        saved = [step for step in range(1, 8) if checkpoints.save(step, state)]
        assert saved == [2, 4, 6]
        assert checkpoints.save(7, {**state, "n": 7}, now=True)
        assert not checkpoints.save(7, state, now=True)
        assert checkpoints.steps == [6, 7]
    with Checkpoints(tmp_path, emulate(2)) as checkpoints:
        step, tree = checkpoints.restore(state)
        assert (step, tree["n"]) == (7, 7)
        step, tree = checkpoints.restore(state, step=6)
        assert (step, tree["n"]) == (6, 0)


@pytest.mark.few(2)
@pytest.mark.parametrize("now", [6, 1])
def test_a_checkpoint_of_others_is_resized(now, tmp_path):
    """As with `resized`, but from files instead of memory, and on devices."""
    name = "all_reduce+top_k+ef14"
    tx, mesh = training.relaxed(name, 8), emulate(8)
    state = training.trained(tx, training.fresh(tx, mesh), mesh, DATA[:2])
    with Checkpoints(tmp_path, mesh) as checkpoints:
        checkpoints.save(2, tree_of(state, 2))
    other = helpers.mesh_of(now)
    like = tree_of(training.fresh(training.relaxed(name, now), other), 0)
    with Checkpoints(tmp_path, other) as checkpoints:
        step, tree = checkpoints.restore(like)
        report = checkpoints.report
    expected, expected_report = relaxjax.checkpoint.resized(tree_of(state, 2), like)
    assert step == tree["batches"] == 2
    assert training.bits(tree) == training.bits(expected)
    assert report == expected_report._replace(meshes=({"data": 8}, {"data": now}))
    assert f"8 workers became {now}" in str(report)
    assert tree["params"]["scale"].sharding == like["params"]["scale"].sharding


def test_a_worker_may_be_a_group_of_devices(tmp_path):
    """Params are sharded over another axis; each part is written once."""
    devices = np.asarray(jax.devices()[:4]).reshape(2, 2)
    mesh = jax.sharding.Mesh(devices, ("data", "model"))
    spec = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data", "model"))
    rows = np.arange(32, dtype=np.float32).reshape(2, 4, 4) % 16
    state = {"w": jax.device_put(rows, spec)}
    with Checkpoints(tmp_path, mesh, axis_name="data") as checkpoints:
        checkpoints.save(1, state)
        _, back = checkpoints.restore({"w": jax.device_put(0 * rows, spec)})
    np.testing.assert_array_equal(back["w"], rows)
    assert back["w"].sharding == spec
    assert (tmp_path / "1" / "state" / "data-0.bin").stat().st_size == 64

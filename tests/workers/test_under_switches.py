"""Training under JAX's switches for debugging: every relaxation trains the same."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax.checkpoint import Checkpoints, plan_of, resized, restore_params
from tests import helpers
from tests.checkpoint import training

WORKERS, EVERY = 4, 2
SWITCHES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "checking_leaks": jax.checking_leaks,
    "debug_nans": lambda: jax.debug_nans(True),
    "disable_jit": jax.disable_jit,
    "rank promotion": lambda: jax.numpy_rank_promotion("raise"),
}
MESH = relaxjax.emulate(WORKERS)


def loss(params: Any, batch: Any) -> jax.Array:
    """That of `helpers.loss_fn`, in which nobody promotes a rank."""
    one, two = params["layer1"], params["layer2"]
    hidden = jnp.tanh(batch["x"] @ one["w"] + one["b"][None])
    return jnp.mean((params["scale"] * (hidden @ two["w"]) - batch["y"]) ** 2)


def trained(tx: Any) -> list[np.ndarray]:
    def step(params: Any, state: Any, batch: Any) -> Any:
        updates, state = tx.update(jax.grad(loss)(params, batch), state, params)
        return optax.apply_updates(params, updates), state, {}

    params, state = training.fresh(tx, MESH)
    train = relaxjax.data_parallel(step, MESH)
    for batch in helpers.batches(training.STEPS, 8):
        params, state, _ = train(params, state, batch)
    return [*map(np.asarray, jax.tree.leaves(params))]


@pytest.mark.long
@pytest.mark.few(8)
@pytest.mark.parametrize("switch", SWITCHES)
@pytest.mark.parametrize("name", training.NAMES)
def test_training_is_the_same(name, switch):
    tx = training.relaxed(name, WORKERS)
    expected = trained(tx)
    with SWITCHES[switch]():
        found = trained(tx)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-4)


@pytest.mark.few(3)
@pytest.mark.parametrize("name", ["all_reduce", "local_sgd", "gossip"])
def test_no_trace_leaks_of_a_relaxation_in_another_trace(name):
    """As in a branch of what takes a step once in a while."""
    tx = relaxjax.accumulate(training.relaxed(name, WORKERS), EVERY)
    expected = trained(tx)
    with jax.checking_leaks():
        found = trained(tx)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_array_equal(x, y)


LOOKING = {
    **SWITCHES,
    "transfer guard": lambda: jax.transfer_guard("disallow"),
    "debug_infs": lambda: jax.debug_infs(True),
}
TX: Any = optax.chain(relaxjax.all_reduce("data"), optax.trace(0.9))
PARAMS = {"w": np.ones((6, 4), np.float32), "b": np.ones(4, np.float32)}
STATE = relaxjax.to_workers(
    {"w": jnp.arange(6.0).reshape(2, 3), "h": jnp.ones(4, jnp.bfloat16)}, MESH
)
PARTED = {"w": jnp.ones((4, 3)).at[1, 2].set(jnp.nan)}
LOOKS: dict[str, Callable[[Any], Any]] = {
    "to_workers": lambda _: relaxjax.to_workers(np.arange(3.0), MESH),
    "init": lambda _: relaxjax.init(TX, PARAMS, MESH),
    "fsdp.init": lambda _: relaxjax.fsdp.init(optax.sgd(0.1), PARAMS, MESH)[0],
    "ps.init": lambda _: relaxjax.ps.init(optax.sgd(0.1), PARAMS, MESH)[0],
    "fsdp.whole": lambda _: relaxjax.fsdp.whole(SHARDS),
    "advance_phases": lambda _: relaxjax.advance_phases(PHASES),
    "consensus": lambda _: relaxjax.consensus(STATE),
    "consensus of NaN": lambda _: relaxjax.consensus(PARTED),
    "spread": lambda _: relaxjax.spread(STATE),
    "spread of NaN": lambda _: relaxjax.spread(PARTED),
    "consensus_distance": lambda _: relaxjax.consensus_distance(STATE),
    "replica_difference": lambda _: str(relaxjax.replica_difference(STATE)),
    "of NaN": lambda _: str(relaxjax.replica_difference(PARTED)),
    "explain": lambda _: str(relaxjax.explain(TX, PARAMS, MESH)),
    "wire_bytes": lambda _: relaxjax.wire_bytes(TX, PARAMS, MESH),
    "plan_of": lambda _: str(plan_of(TX, PARAMS, MESH)),
    "restore": lambda folder: Checkpoints(folder, MESH, read_only=True).restore(STATE),
    "restore_params": lambda folder: restore_params(folder, part="w"),
    "resized": lambda _: resized(STATE, OTHERS)[0],
}
SHARDS = relaxjax.fsdp.init(optax.sgd(0.1), PARAMS, MESH)[0]
LATE: Any = optax.chain(relaxjax.power_sgd("data", start_after=9), optax.sgd(0.1))
PHASES = relaxjax.init(LATE, PARAMS, MESH)[1]
OTHERS = relaxjax.to_workers(relaxjax.consensus(STATE), relaxjax.emulate(2))


@pytest.mark.few(24)
@pytest.mark.parametrize("switch", LOOKING)
@pytest.mark.parametrize("name", LOOKS)
def test_what_looks_at_a_run_does_not_heed_them(name, switch, tmp_path):
    """They are for the step: what is placed and compared was asked for."""
    with Checkpoints(tmp_path, MESH) as saves:
        saves.save(1, STATE)
    expected = LOOKS[name](tmp_path)
    with LOOKING[switch]():
        found = LOOKS[name](tmp_path)
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    for x, y in pairs:
        np.testing.assert_array_equal(x, y)

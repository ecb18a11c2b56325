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


@pytest.mark.parametrize("name", ["all_reduce", "local_sgd", "gossip"])
def test_no_trace_leaks_of_a_relaxation_in_another_trace(name):
    """As in a branch of what takes a step once in a while."""
    tx = relaxjax.accumulate(training.relaxed(name, WORKERS), EVERY)
    expected = trained(tx)
    with jax.checking_leaks():
        found = trained(tx)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_array_equal(x, y)

"""State that is made anew inside the step, beside state that the host times.

Right: as if a new state had been handed to the loop between two steps.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import all_reduce, emulate
from relaxjax._core._phases import clocks_of
from tests.helpers import assert_close, assert_equal

MESH = emulate(4)
START = {"w": jnp.ones((6, 4)), "b": jnp.zeros(4)}
AGAIN, STEPS = 4, 7  # steps after which state begins anew, and all
PHASED: dict[str, Any] = {
    "power_sgd": relaxjax.power_sgd("data", rank=2, start_after=2, min_compression=0),
    "acp_sgd": relaxjax.acp_sgd("data", rank=2, start_after=3, min_compression=0),
    "before_step": optax.chain(
        relaxjax.before_step(optax.scale(2.0), 2), all_reduce("data")
    ),
    "by_step": relaxjax.by_step(
        {0: all_reduce("data"), 2: all_reduce("data", algorithm="ring")}
    ),
    "deep_gradient_compression": relaxjax.deep_gradient_compression(
        "data", density=0.25
    ),
}


def batches() -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=(8, 6)).astype(np.float32) for _ in range(STEPS)]


def trained(tx: Any, *, in_step: bool, mesh: Any = MESH) -> tuple[Any, Any]:
    """Params and state of a run whose state begins anew in a step, or after it."""

    def loss_fn(p, x):
        return jnp.mean((jnp.tanh(x @ p["w"]) + p["b"]) ** 2)

    def step(params, state, number, x):
        updates, state = tx.update(jax.grad(loss_fn)(params, x), state, params)
        if in_step:
            state = jax.tree.map(
                lambda new, old: jnp.where(number == AGAIN, new, old),
                tx.init(params),
                state,
            )
        return optax.apply_updates(params, updates), state, number + 1, {}

    params, state = relaxjax.init(tx, START, mesh)
    number = relaxjax.to_workers(1, mesh)
    train = relaxjax.data_parallel(step, mesh)
    for i, batch in enumerate(batches(), start=1):
        params, state, number, _ = train(params, state, number, batch)
        if i == AGAIN and not in_step:
            _, state = relaxjax.init(tx, START, mesh)
    return params, state


@pytest.mark.long
@pytest.mark.few(4)
@pytest.mark.parametrize("name", PHASED)
def test_a_restart_in_the_step_is_one_between_steps(name):
    tx = optax.chain(PHASED[name], optax.sgd(0.1))
    expected, kept = trained(tx, in_step=False)
    found, state = trained(tx, in_step=True)
    assert_close(found, expected, 1e-5)
    counts = [[int(c.count[0]) for c in clocks_of(x)] for x in (state, kept)]
    assert_equal(counts[0], counts[1])


@pytest.mark.long
def test_on_devices():
    tx = optax.chain(PHASED["power_sgd"], optax.sgd(0.1))
    mesh = jax.make_mesh((4,), ("data",))
    expected, _ = trained(tx, in_step=False)
    found, _ = trained(tx, in_step=True, mesh=mesh)
    assert_close(found, expected, 1e-5)


AROUND: dict[str, Any] = {
    "sam": lambda tx: optax.contrib.sam(
        optax.chain(all_reduce("data"), optax.sgd(0.05)),
        optax.chain(tx, optax.contrib.normalize(), optax.sgd(0.05)),
    ),
    "lookahead": lambda tx: optax.lookahead(
        optax.chain(tx, optax.sgd(0.05)), 2, 0.5, reset_state=True
    ),
}


@pytest.mark.long
@pytest.mark.few(6)
@pytest.mark.parametrize("name", sorted({*PHASED} - {"before_step"}))
@pytest.mark.parametrize("around", AROUND)
def test_optimizers_that_reset_a_state_within(around, name):
    tx, start = AROUND[around](PHASED[name]), START
    if around == "lookahead":
        start = optax.LookaheadParams.init_synced(START)

    def step(params, state, x):
        fast = params.fast if around == "lookahead" else params
        grads = jax.grad(lambda p: jnp.mean(jnp.tanh(x @ p["w"] + p["b"]) ** 2))(fast)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, {}

    params, state = relaxjax.init(tx, start, MESH)
    train = relaxjax.data_parallel(step, MESH)
    for batch in batches():
        params, state, _ = train(params, state, batch)
    assert relaxjax.spread(params) == 0

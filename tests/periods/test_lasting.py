"""A period that is set between steps is as long as its method needs, like a table's."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import periods

N, STEPS, LONG = 4, 20, 4
Make = Callable[[Any], Any]
# Methods that need some steps in a period, and a shorter one.
SHORT: dict[str, tuple[Make, int]] = {
    "asynchronous_average": (
        lambda period: optax.chain(
            optax.sgd(0.1), relaxjax.asynchronous_average("data", period, delay=1)
        ),
        1,
    ),
    "streaming_diloco": (
        lambda period: relaxjax.streaming_diloco(
            optax.sgd(0.1),
            "data",
            period,
            fragments=2,
            overlap=1,
            outer=optax.sgd(1.0),
        ),
        2,
    ),
    "slow_momentum of a rate that falls": (
        lambda period: optax.chain(
            optax.sgd(0.1),
            relaxjax.slow_momentum(
                "data",
                period,
                learning_rate=optax.exponential_decay(0.1, 3, 0.5),
            ),
        ),
        2,
    ),
    "decoupled_diloco": (
        lambda period: relaxjax.decoupled_diloco(
            optax.sgd(0.1),
            "data",
            sync_every=period,
            fragments=1,
            overlap=2,
            merge="mean",
            outer=optax.sgd(1.0),
        ),
        1,
    ),
}


def models(tx: Any, short: int | None) -> np.ndarray:
    """Params of all steps; after the first period, each one is set to be short."""
    params: Any = {"a": jnp.zeros(N), "b": jnp.zeros((N, 2))}
    grads = jax.tree.map(lambda x: jnp.ones_like(x).cumsum(0), params)
    state = jax.vmap(tx.init, axis_name="data")(params)
    step, found = jax.jit(jax.vmap(tx.update, axis_name="data")), []
    for _ in range(STEPS):
        updates, state = step(grads, state, params)
        params = optax.apply_updates(params, updates)
        found.append(np.concatenate([params["a"], params["b"][:, 0]]))
        if short is not None:
            state = periods.lasting(state, short) if _is_new(state) else state
    return np.array(found)


def _is_new(state: Any) -> bool:
    """Whether a period has just begun, and is not the first one."""
    clock = next(
        x
        for x in jax.tree.leaves(state, is_leaf=lambda x: hasattr(x, "begun"))
        if hasattr(x, "begun")
    )
    return bool((clock.begun == clock.taken).all() and (clock.taken > 0).all())


@pytest.mark.parametrize("name", SHORT)
def test_a_period_that_is_too_short_is_as_long_as_a_tables(name):
    make, short = SHORT[name]
    table = models(make(periods.table([(0, LONG), (LONG, short)])), None)
    np.testing.assert_array_equal(models(make(periods.table([LONG])), short), table)


def test_a_whole_number_beside_a_schedule_is_not_set():
    """Moments of a fixed period, and params whose period a controller decides."""
    fixed = {"params": periods.table([4]), "trace": 12}
    tx = relaxjax.desynced(optax.sgd(0.1, 0.9), "data", periods=fixed)
    params: Any = jnp.zeros(N)
    grads = jnp.arange(float(N))
    state: Any = jax.vmap(tx.init, axis_name="data")(params)
    step, met = jax.jit(jax.vmap(tx.update, axis_name="data")), []
    for number in range(1, 26):
        updates, state = step(grads + params, state, params)
        params = optax.apply_updates(params, updates)
        if relaxjax.spread(state.inner[0].trace) == 0:
            met.append(number)
        state = periods.lasting(state, 4) if number % 4 == 0 else state
    assert met == [12, 24]

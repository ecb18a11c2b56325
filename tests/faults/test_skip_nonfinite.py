"""skip_nonfinite: all skip together, and the step leaves no trace."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import all_reduce, skip_nonfinite
from tests import helpers
from tests.helpers import assert_equal, mesh_of

N = 4


def guarded(optimizer=None):
    optimizer = optimizer or optax.adam(1e-2)
    return skip_nonfinite(optax.chain(all_reduce("data"), optimizer), "data")


@functools.cache
def started(place: Any) -> tuple[Any, Any]:
    """A step, compiled once for all cases, and the state that it starts from."""
    mesh = place(N)
    step = relaxjax.data_parallel(helpers.train_step_of(guarded()), mesh)
    return step, relaxjax.init(guarded(), helpers.problem(), mesh)


def trained(place: Any, data: list[Any]) -> tuple[Any, Any]:
    step, state = started(place)
    for batch in data:
        *state, _ = step(*state, batch)
    return tuple(state)


CASES = [
    (place, worker, step, value)
    for place in (mesh_of, relaxjax.emulate)
    for worker in range(N)
    for step in (0, 2)
    for value in (np.nan, np.inf, -np.inf)
    # A case for each step on the mesh; the emulation covers the rest.
    if place is relaxjax.emulate or (worker, value) == (2, np.inf)
]


@pytest.mark.few(10)
@pytest.mark.parametrize(("place", "bad_worker", "bad_step", "value"), CASES)
def test_equals_the_run_without_that_step(place, bad_worker, bad_step, value):
    data = helpers.batches(4, rows=2 * N)
    data[bad_step]["x"][2 * bad_worker + 1, 3] = value
    params, state = trained(place, data)
    without = [b for i, b in enumerate(data) if i != bad_step]
    expected, expected_state = trained(place, without)
    assert_equal(params, expected)
    assert_equal(state.inner_state, expected_state.inner_state)
    np.testing.assert_array_equal(state.skipped, [1] * N)
    assert relaxjax.spread((params, state)) == 0.0


def test_overflow_in_the_reduction_itself():
    tx: Any = skip_nonfinite(all_reduce("data", op="sum"), "data")
    big = jnp.full((2,), 3e38)

    def update(g):
        out, state = tx.update(g, tx.init(g))
        return out, state.skipped

    out, skipped = jax.vmap(update, axis_name="data")(big)
    np.testing.assert_array_equal(out, [0, 0])
    np.testing.assert_array_equal(skipped, [1, 1])


def test_all_skip_for_one_where_nothing_is_reduced():
    """No reducer spreads the NaN: the workers must still decide together."""
    tx: Any = skip_nonfinite(optax.identity(), "data")

    def one(u):
        updates, state = tx.update(u, tx.init(u))
        return updates, state.skipped

    out, skipped = jax.vmap(one, axis_name="data")(jnp.array([1.0, jnp.nan, 2.0]))
    np.testing.assert_array_equal(out, [0.0] * 3)
    np.testing.assert_array_equal(skipped, [1] * 3)


def test_keys_in_the_state_are_restored():
    tx: Any = skip_nonfinite(
        optax.chain(all_reduce("data"), optax.add_noise(0.1, 0.5, jax.random.key(0))),
        "data",
    )

    def update(g):
        state = tx.init(g)
        out, new = tx.update(g, state)
        before = optax.tree.get(state, "rng_key")
        after = optax.tree.get(new, "rng_key")
        return out, jax.random.key_data(before), jax.random.key_data(after)

    out, before, after = jax.vmap(update, axis_name="data")(jnp.array([1.0, jnp.nan]))
    np.testing.assert_array_equal(out, [0, 0])
    assert_equal(before, after)
    _, before, after = jax.vmap(update, axis_name="data")(jnp.array([1.0, 2.0]))
    assert (np.asarray(before) != np.asarray(after)).any()


def test_nothing_to_look_at():
    tx: Any = skip_nonfinite(optax.identity(), "data")
    out, state = jax.vmap(lambda _: tx.update({}, tx.init({})), axis_name="data")(
        jnp.zeros(2)
    )
    assert out == {}
    np.testing.assert_array_equal(state.skipped, [0, 0])


def test_outside_the_axis():
    tx: Any = guarded()
    state = tx.init(helpers.problem())
    with pytest.raises(NameError, match="skip_nonfinite: no axis named 'data'"):
        tx.update(helpers.problem(), state)

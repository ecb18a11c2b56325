"""Transformations that follow one another: bits, bytes, and what is owed."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import by_step, compression, emulate
from tests import helpers
from tests.helpers import mesh_of, pulled, targets_of

N, CHANGE, STEPS = 4, 5, 12


def reducer(bits: int, feedback: bool = True, **how: Any) -> Any:
    code = compression.quantize(bits)
    code = compression.error_feedback(code) if feedback else code
    given: Any = {"compressor": code, "algorithm": "two_shot"} | how
    return relaxjax.all_reduce("data", **given)


def models(tx: Any, mesh: Any, steps: int = STEPS) -> list[np.ndarray]:
    chain = optax.chain(tx, optax.sgd(0.1, 0.9))
    return [np.asarray(x) for x, _ in pulled(chain, targets_of(N, 24), mesh, steps)]


@pytest.mark.parametrize("place", [emulate, mesh_of])
def test_the_first_part_is_the_first_transformation_to_the_bit(place):
    found = models(by_step({0: reducer(8), CHANGE: reducer(2)}), place(N))
    first, second = (models(reducer(bits), place(N)) for bits in (8, 2))
    for step in range(STEPS):
        assert np.array_equal(found[step], first[step]) == (step < CHANGE)
        assert not np.array_equal(found[step], second[step])


@pytest.mark.parametrize("place", [emulate, mesh_of])
def test_all_alike_are_one(place):
    found = models(by_step({0: reducer(4), 3: reducer(4), 7: reducer(4)}), place(N))
    one = models(reducer(4), place(N))
    for x, y in zip(found, one, strict=True):
        np.testing.assert_array_equal(x, y)


def run(tx: Any, grads: list[np.ndarray], hosted: bool = True) -> tuple[Any, Any]:
    """Sum of updates of each worker, and the last state."""
    step = jax.vmap(lambda g, s: tx.update(g, s), axis_name="data")
    state = jax.vmap(tx.init, axis_name="data")(jnp.asarray(grads[0]))
    total = np.zeros_like(grads[0])
    for g in grads:
        state = relaxjax.advance_phases(state) if hosted else state
        out, state = jax.jit(step)(jnp.asarray(g), state)
        total += np.asarray(out)
    return total, state


def drawn(steps: int = 9) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=(N, 40)).astype(np.float32) for _ in range(steps)]


def test_what_one_code_owes_the_next_delivers():
    """Sum of updates and what is owed at the end: the sum of the gradients' means."""
    grads = drawn()
    how: dict[str, Any] = {"algorithm": "one_shot"}
    tx = by_step({0: reducer(2, **how), 4: reducer(8, **how)})
    total, state = run(tx, grads)
    owed = sum(
        np.asarray(x).mean(axis=0)
        for x in jax.tree.leaves(state.inner_state)
        if jnp.issubdtype(x.dtype, jnp.floating) and x.shape == grads[0].shape
    )
    right = sum(g.mean(axis=0) for g in grads)
    np.testing.assert_allclose(total[0] + owed, right, atol=1e-5)
    at_change = np.abs(
        run(reducer(2, **how), grads[:4])[0][0] - sum(g.mean(axis=0) for g in grads[:4])
    )
    assert at_change.max() > 0.1  # two bits owed much
    assert np.abs(total[0] - right).max() < 0.1 * at_change.max()


def test_each_phase_sends_what_its_own_program_sends():
    params = {"w": jnp.zeros((64, 64)), "b": jnp.zeros(64)}
    tx = by_step({0: reducer(8), 3: reducer(4), 5: reducer(2)})
    each = [relaxjax.wire_bytes(tx, params, emulate(N), start=t) for t in range(7)]
    own = [
        relaxjax.wire_bytes(one, params, emulate(N))
        for one in (reducer(8), reducer(4), reducer(2))
    ]
    assert each == [own[0]] * 3 + [own[1]] * 2 + [own[2]] * 2
    assert own[0] > own[1] > own[2]
    whole = relaxjax.wire_bytes(tx, params, emulate(N), steps=7)
    assert whole == sum(each)


@pytest.mark.parametrize("hosted", [True, False])
def test_in_any_loop(hosted):
    """Where nobody sets the phase, the step holds all of them and counts."""
    on, off = (optax.chain(reducer(8, False), optax.scale(x)) for x in (1.0, 0.0))
    tx = by_step({0: on, 4: off})
    total, _ = run(tx, drawn(), hosted)
    expected, _ = run(reducer(8, False), drawn(4))
    np.testing.assert_array_equal(total, expected)


@pytest.mark.long
def test_a_resumed_run_goes_on():
    mesh, data = mesh_of(N), helpers.batches(8, 2 * N)
    tx = optax.chain(by_step({0: reducer(8), 4: reducer(2)}), optax.adam(0.02))

    def steps(state: Any, part: list[Any]) -> Any:
        step = relaxjax.data_parallel(helpers.train_step_of(tx), mesh)
        for batch in part:
            *state, _ = step(*state, batch)
        return state

    start = relaxjax.init(tx, helpers.problem(), mesh)
    whole = steps(start, data)
    half = steps(start, data[:3])
    again = jax.tree.map(lambda x: jnp.asarray(np.asarray(x)), half)
    helpers.assert_equal(whole, steps(again, data[3:]))


def test_a_nan_shows_in_each_phase():
    grads = drawn(4)
    grads[3][1, 7] = np.nan
    for change in (2, 4):
        tx = by_step({0: reducer(8, False), change: reducer(4, False)})
        total, _ = run(tx, grads)
        assert np.isnan(total).any()


def test_optimizers_may_follow_one_another_too():
    tx: Any = by_step({2: optax.sgd(10.0, 0.5), 0: optax.sgd(1.0, 0.5)})
    state, seen = tx.init(jnp.zeros(())), []
    for _ in range(3):
        state = relaxjax.advance_phases(state)
        out, state = tx.update(jnp.ones(()), state)
        seen.append(float(out))
    assert seen == [-1.0, -1.5, -17.5]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "must have one from step 0 on, as in"),
        ({3: optax.identity()}, "must have one from step 0 on, as in"),
        ({0: optax.identity(), -1: optax.identity()}, "a step=-1 must be a whole"),
        ({0: optax.identity(), 1.5: optax.identity()}, "a step=1.5 must be a whole"),
    ],
)
def test_refuses_rows_that_say_nothing(given, message):
    with pytest.raises(ValueError, match=message):
        by_step(given)


def test_refuses_what_is_no_transformation():
    odd: Any = {0: optax.identity(), 4: 3}
    with pytest.raises(TypeError, match=r"transformations\[4\]"):
        by_step(odd)
    listed: Any = [optax.identity()]
    with pytest.raises(TypeError, match="must be a gradient transformation from each"):
        by_step(listed)


def test_refuses_states_that_cannot_go_on():
    params = jnp.zeros(8)
    tx = by_step({0: reducer(8), 6: reducer(8, False)})
    with pytest.raises(ValueError, match=r"from step 0 on it is .* from step 6 on"):
        jax.vmap(tx.init, axis_name="data", in_axes=None, axis_size=2)(params)
    with pytest.raises(ValueError, match="all have error feedback, or none"):
        by_step({0: optax.sgd(0.1), 1: optax.adam(0.1)}).init(params)

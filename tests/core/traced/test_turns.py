"""Numbers of a state, counted through: what they choose, and when models meet."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from relaxjax._core.traced._turns import STEPS, choices_of, numbers_of, undone

SCOPE = "relaxjax.method/models/data/0"
COUNT = np.arange(STEPS)


def program_of(update):
    """Of (gradient, (count, other)) -> (update, (count, other)), on four devices."""
    state = jnp.int32(0), jnp.int32(0)
    return jax.make_jaxpr(update, axis_env=[("data", 4)])(jnp.ones(3), state)


def meeting_of(meet):
    """The steps in which models meet, by a function of (gradient, count)."""

    def update(g, state):
        with jax.named_scope(SCOPE):
            return meet(g, state[0]), (state[0] + 1, state[1])

    return choices_of(program_of(update), [0, 0], 1).meeting


def mean(x):
    return lax.pmean(x, "data")


def test_models_meet_by_the_branch_that_is_taken():
    def meet(g, count):
        branches = [lambda x: 2 * x, mean, lambda x: 3 * x]
        return lax.switch(count % 3, branches, g)

    np.testing.assert_array_equal(meeting_of(meet), COUNT % 3 == 1)


def test_models_meet_in_the_turn_of_a_loop():
    def meet(g, count):
        def turn(carry):
            return jnp.zeros((), bool), mean(carry[1])

        return lax.while_loop(lambda carry: carry[0], turn, (count % 5 == 4, g))[1]

    np.testing.assert_array_equal(meeting_of(meet), COUNT % 5 == 4)


def test_models_meet_always_where_a_gradient_decides():
    def meet(g, count):
        return lax.cond(g[0] > count, mean, lambda x: x, g)

    assert meeting_of(meet).all()


def test_nobody_meets_where_nothing_is_sent():
    assert not meeting_of(lambda g, count: g * count).any()


def test_a_number_that_a_gradient_changes_chooses_nothing():
    """Nor does one that follows from it; the others are counted on."""

    def update(g, state):
        count, other = state
        kept = jnp.where(g[0] > 0, other + 1, other)
        chosen = jnp.where(other == 0, g, 0) + (count % 2 == 0) * g
        return chosen, (count + 1, kept)

    choices = choices_of(program_of(update), [0, 0], 1)
    assert [sorted(row.values()) for row in choices.rows] == [[0], [1]]
    np.testing.assert_array_equal(choices.at, (COUNT + 1) % 2)


def test_values_of_functions_that_are_called_are_told_apart():
    """Those inside of a call are gone after it, and others take their places."""

    def update(g, state):
        count, other = state
        for k in range(60):
            at = jax.jit(lambda n, k=k: (n + k) * 2 % 7)(count)
            g = g + (at == 0) * g
        return g, (count + 1, other)

    choices = choices_of(program_of(update), [0, 0], 1)
    for step in (0, 1, 100, STEPS - 1):
        on = sorted(choices.rows[choices.at[step]].values())
        assert on == sorted(float((step + k) * 2 % 7 == 0) for k in range(60))


def test_numbers_begin_as_init_says():
    def init(x):
        return {"a": jnp.int32(3), "b": x, "c": jnp.ones(()), "d": jnp.int32(2) * 2}

    program = jax.make_jaxpr(init)(jnp.ones(2))
    found = numbers_of(program)
    assert [x if x is None else int(x) for x in found] == [3, None, None, 4]


@pytest.mark.parametrize(
    ("meeting", "taken", "back", "want"),
    [
        ("0100", "1000", "0010", True),  # between
        ("0010", "1000", "0010", False),  # right after the step back
        ("1000", "0100", "0010", False),  # before what is remembered
        ("1000", "1000", "0100", True),  # after it was remembered, in the same step
        ("0000", "1010", "0101", False),
        ("0001", "1010", "0101", False),
    ],
)
def test_a_step_back_undoes_what_met_since_it_was_taken(meeting, taken, back, want):
    rows = [np.array([c == "1" for c in text]) for text in (meeting, taken, back)]
    assert undone(*rows) == want

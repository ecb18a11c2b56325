"""Workers that enter a meeting, or not, by their own numbers are warned of in time."""

import re
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax

import relaxjax
from relaxjax import all_reduce, emulate, local_sgd
from tests.helpers import mesh_of
from tests.workers.followed.test_passed_by import BATCH, PARAMS, loss_of

TX: Any = optax.chain(all_reduce("data"), optax.sgd(0.1))
WARNED = "whether .* runs in a branch or a loop is decided by each worker's own batch"


def deciding(of: Any) -> Any:
    """A step that updates where a number of the worker's says so."""

    def step(p, s, x):
        loss, g = jax.value_and_grad(loss_of)(p, x)

        def act() -> Any:
            return TX.update(g, s, p)

        def wait() -> Any:
            return jax.tree.map(jnp.zeros_like, p), s

        u, s = lax.cond(of(loss, x) < 1.2, act, wait)
        return optax.apply_updates(p, u), s, {"loss": loss}

    return step


def by_hand(of: Any) -> Any:
    """A step that averages gradients in a loop of as many turns as a number says."""

    def step(p, s, x):
        loss, g = jax.value_and_grad(loss_of)(p, x)
        g = lax.while_loop(
            lambda carry: carry[0] < of(loss, x),
            lambda carry: (carry[0] + 1, lax.pmean(carry[1], "data")),
            (jnp.float32(0), g),
        )[1]
        u, s = optax.sgd(0.1).update(g, s, p)
        return optax.apply_updates(p, u), s, {"loss": loss}

    return step


def searching(of: Any) -> Any:
    """A loop without a collective may be each worker's own."""

    def step(p, s, x):
        loss, g = jax.value_and_grad(loss_of)(p, x)
        g = lax.while_loop(
            lambda g: optax.tree.norm(g) > of(loss, x),
            lambda g: jax.tree.map(lambda leaf: 0.5 * leaf, g),
            g,
        )
        u, s = TX.update(g, s, p)
        return optax.apply_updates(p, u), s, {"loss": loss}

    return step


OWN = {
    "loss": lambda loss, x: loss,
    "batch": lambda loss, x: x[0, 0],
    "place": lambda loss, x: lax.axis_index("data").astype(jnp.float32),
}
COMMON = {
    "mean": lambda loss, x: lax.pmean(loss, "data"),
    "most": lambda loss, x: lax.pmax(x[0, 0], "data"),
    "constant": lambda loss, x: jnp.float32(1),
}


def told(step: Any, mesh: Any, tx: Any = TX) -> list[str]:
    """What is said of a program before it runs."""
    state = relaxjax.init(tx, PARAMS, mesh, reduced_in_step=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        relaxjax.data_parallel(step, mesh).lower(*state, BATCH)
    return [str(x.message) for x in caught]


@pytest.mark.parametrize("where", [emulate(4), mesh_of(4)], ids=["emulated", "mesh"])
@pytest.mark.parametrize("kind", [deciding, by_hand])
@pytest.mark.parametrize("of", [*OWN, *COMMON])
def test_a_meeting_of_some_is_told_before_it_runs(kind, of, where):
    said = told(kind((OWN | COMMON)[of]), where)
    assert len(said) == (of in OWN)
    for text in said:
        assert text.startswith("data_parallel: whether ")
        assert "on a mesh the step hangs" in text


def jitted(of: Any) -> Any:
    """The choice stands in a jitted function, in a scan of the step."""

    def step(p, s, x):
        def turn(now: Any, _: Any) -> Any:
            return jax.jit(deciding(of))(*now, x)[:2], ()

        return *lax.scan(turn, (p, s), length=2)[0], {}

    return step


@pytest.mark.parametrize("of", ["loss", "mean"])
def test_a_choice_inside_of_a_loop_and_a_jitted_function(of):
    said = told(jitted((OWN | COMMON)[of]), emulate(4))
    assert [x.startswith("data_parallel: whether") for x in said] == [True] * (
        of in OWN
    )


@pytest.mark.parametrize("of", OWN)
def test_a_loop_in_which_nobody_meets_is_a_worker_s_own(of):
    assert told(searching(OWN[of]), emulate(4)) == []


def test_one_worker_waits_for_nobody():
    assert told(deciding(OWN["loss"]), emulate(1)) == []


def test_a_step_of_one_worker_is_followed_further():
    tx: Any = optax.adam(0.1)

    def step(p, s, x):
        u, _ = tx.update(jax.grad(loss_of)(p, x), s, p)
        return optax.apply_updates(p, u), s, {}

    mesh = emulate(1)
    state = relaxjax.init(tx, PARAMS, mesh, reduced_in_step=True)
    with pytest.warns(UserWarning, match="and returns it as it was"):
        relaxjax.data_parallel(step, mesh)(*state, BATCH)


def test_a_state_that_was_a_worker_s_own_decides_in_the_next_step():
    def step(p, s, last, x):
        u, s = lax.cond(
            last < 1,
            lambda: TX.update(p, s, p),
            lambda: (jax.tree.map(jnp.zeros_like, p), s),
        )
        return optax.apply_updates(p, u), s, loss_of(p, x), {}

    mesh = emulate(4)
    p, s = relaxjax.init(TX, PARAMS, mesh, reduced_in_step=True)
    last = relaxjax.to_workers(np.float32(0), mesh)
    with pytest.warns(UserWarning, match=WARNED):
        relaxjax.data_parallel(step, mesh).lower(p, s, last, BATCH)


def test_a_key_of_ones_own_decides():
    def step(p, s, key, x):
        u, s = lax.cond(
            jax.random.bernoulli(key),
            lambda: TX.update(jax.grad(loss_of)(p, x), s, p),
            lambda: (jax.tree.map(jnp.zeros_like, p), s),
        )
        return optax.apply_updates(p, u), s, key, {}

    mesh = emulate(4)
    p, s = relaxjax.init(TX, PARAMS, mesh, reduced_in_step=True)
    for same in (False, True):
        key = relaxjax.to_workers(jax.random.key(0), mesh, same=same)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            relaxjax.data_parallel(step, mesh)(p, s, key, BATCH)
        assert len(caught) == (not same)  # and nothing of what follows from it
        for told in caught:
            assert re.search(WARNED, str(told.message))
            assert told.filename == __file__


def test_periods_and_relaxations_of_models_decide_by_counts():
    tx: Any = optax.chain(optax.adam(0.1), local_sgd("data", 2))

    def step(p, s, x):
        u, s = tx.update(jax.grad(loss_of)(p, x), s, p)
        return optax.apply_updates(p, u), s, {}

    assert told(step, mesh_of(4), tx) == []

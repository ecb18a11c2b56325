"""A loss that is handed to the optimizer must be that of all workers."""

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

BATCH = np.arange(12.0, dtype=np.float32).reshape(4, 3)
POLYAK, REDUCED = optax.polyak_sgd(), all_reduce("data")
PLATEAU = optax.chain(optax.sgd(0.1), optax.contrib.reduce_on_plateau(patience=1))


def own(loss: Any, params: Any) -> Any:
    del params
    return loss


def mean(loss: Any, params: Any) -> Any:
    del params
    return lax.pmean(loss, "data")


def said(
    tx: Any, value_of: Any = own, mesh: Any = None, with_params: bool = True
) -> list[str]:
    """What the first two steps say."""

    def train_step(p, s, x):
        loss, g = jax.value_and_grad(
            # The loss itself stands in the derivative of exp.
            lambda p: lax.exp(((p["w"] - x) ** 2).mean() / 99 + (p["b"] ** 2).sum())
        )(p)
        given = p if with_params else None
        u, s = tx.update(g, s, given, value=value_of(loss, p))
        return optax.apply_updates(p, u), s, {"loss": loss}

    mesh = mesh or emulate(4)
    state = relaxjax.init(tx, {"w": jnp.zeros(3), "b": jnp.ones(2)}, mesh)
    step = relaxjax.data_parallel(train_step, mesh, donate=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            *state, _ = step(*state, BATCH)
    return [str(w.message) for w in caught if w.category is UserWarning]


def of_one(params: Any) -> Any:
    del params
    return jnp.ones(())


def by_the_last(updates, state, params=None, **extra):
    del params
    return jax.tree.map(lambda x: x * state, updates), extra["value"]


LAST: Any = optax.GradientTransformationExtraArgs(of_one, by_the_last)
WRONG: dict[str, Any] = {
    "polyak_sgd": optax.chain(REDUCED, POLYAK),
    "a plateau": optax.chain(REDUCED, PLATEAU),
    "in later steps": optax.chain(REDUCED, LAST),
    "skipping": relaxjax.skip_nonfinite(optax.chain(REDUCED, POLYAK), "data"),
}


@pytest.mark.parametrize("tx", WRONG.values(), ids=WRONG)
def test_ones_own_loss_is_warned_of_once(tx):
    (text,) = said(tx)
    assert "value=jax.lax.pmean(loss, 'data')" in text
    assert said(tx, mean) == []


def test_on_a_mesh():
    mesh = jax.make_mesh((4,), ("data",))
    assert len(said(WRONG["polyak_sgd"], own, mesh)) == 1


RIGHT: dict[str, Any] = {
    "nobody asks for it": optax.chain(REDUCED, optax.adam(0.1)),
    "models that meet": optax.chain(POLYAK, local_sgd("data", 2)),
    "a leaf of one's own": optax.chain(
        optax.partition(
            {"all": REDUCED, "own": relaxjax.local()}, {"w": "own", "b": "all"}
        ),
        optax.sgd(0.1),
    ),
}


@pytest.mark.parametrize("tx", RIGHT.values(), ids=RIGHT)
def test_right_programs_are_not_warned_of(tx):
    assert said(tx) == []


def test_what_all_know_may_be_in_the_value():
    def penalized(loss, params):
        return mean(loss, params) + (params["b"] ** 2).sum()

    assert said(WRONG["polyak_sgd"], penalized) == []


def test_models_that_meet_along_the_axis_where_values_differ():
    """Inside of a host all have its mean, and the hosts' models are averaged."""
    tx = optax.chain(all_reduce("data"), POLYAK, local_sgd("host", 2))
    hosts = emulate({"host": 2, "data": 2})
    assert said(tx, mean, hosts) == []
    assert len(said(tx, own, hosts)) == 1


def test_where_it_is_not_seen_whose_the_updates_are_nothing_is_said():
    assert said(optax.chain(REDUCED, optax.sgd(0.1)), with_params=False) == []

"""Params of any float dtype: every relaxation is right in them.

The same steps as in float32, of workers whose gradients differ; the state keeps its
shapes and dtypes.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import controllers
from relaxjax._core._relaxation import Training
from relaxjax._names import RELAXATIONS, parse
from tests import helpers

WORKERS, STEPS = 4, 4
NAMES = [
    *RELAXATIONS,
    "gossip+sign",
    "gossip+quantize8",
    "dcd_psgd+quantize8",
    "deep_squeeze+sign",
    "deep_squeeze+quantize4",
    "all_reduce+sign+ef14@two_shot",
    "all_reduce+quantize8+ef21",
    "local_sgd+quantize8+ef14",
    "diloco+quantize8",
    "parameter_server+quantize8+ef14",
]
# Relative to the largest of the params; where codes of models turn rounding into
# another code, tenfold.
DTYPES = {"bfloat16": 0.03, "float16": 0.004, "float64": 1e-5}
CODED = ("moniqua", "gossip+", "deep_squeeze", "dcd_psgd", "demo")


def train(name: str, dtype: Any) -> tuple[Any, Any, Any]:
    """Params after some steps, and state before and after them, over `vmap`."""
    rate = 0.05
    training = Training(optax.sgd(rate), rate, 100, WORKERS)
    tx: Any = parse(name).build("data", training)
    rng = np.random.default_rng(0)
    start = {"w": rng.normal(size=3), "m": rng.normal(size=(16, 12))}
    gs = {
        k: rng.normal(size=(STEPS, WORKERS, *x.shape)) + 1.0 for k, x in start.items()
    }
    x, gs = (jax.tree.map(lambda a: jnp.asarray(a, dtype), t) for t in (start, gs))
    x = jax.tree.map(lambda a: jnp.broadcast_to(a, (WORKERS, *a.shape)), x)
    first = state = jax.vmap(tx.init, axis_name="data")(x)
    update = jax.jit(jax.vmap(tx.update, axis_name="data"))
    for step in range(STEPS):
        updates, state = update(jax.tree.map(lambda g, s=step: g[s], gs), state, x)
        x = optax.apply_updates(x, updates)
    return jax.tree.map(lambda a: np.asarray(a, np.float64), x), first, state


@functools.cache
def in_float32(name: str) -> Any:
    return train(name, jnp.float32)[0]


@pytest.mark.few(3)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_every_float_dtype_is_right(name, dtype):
    expected = in_float32(name)
    with jax.enable_x64(dtype == "float64"):
        x, first, state = train(name, dtype)
    assert helpers.kinds(first) == helpers.kinds(state)
    factor = 12 if name.startswith(CODED) and dtype != "float64" else 1
    for key, value in x.items():
        off = np.abs(value - expected[key]).max() / np.abs(expected[key]).max()
        assert off < factor * DTYPES[dtype], (key, off)


def weighed(name: str) -> Any:
    """The updates of a step in which one worker of four has all examples."""
    tx: Any = parse(name).build("data", Training(optax.identity(), 1.0, 100, WORKERS))
    shapes = {"m": (WORKERS, 16, 12), "w": (WORKERS, 3)}
    g = {k: jnp.full(shape, 3e4, jnp.float16) for k, shape in shapes.items()}
    weights = jnp.array([1.0, *[0.0] * (WORKERS - 1)])

    def update(g: Any, weight: Any) -> Any:
        x = optax.tree.zeros_like(g)
        return tx.update(g, tx.init(x), x, weight=weight)[0]

    step = jax.jit(jax.vmap(update, axis_name="data"))
    return [np.asarray(x, np.float64) for x in jax.tree.leaves(step(g, weights))]


@pytest.mark.few(3)
@pytest.mark.parametrize("name", NAMES)
def test_weights_leave_float16_in_range(name):
    """n w g / sum w is out of it; g and their mean are not."""
    try:
        found = weighed(name)
    except ValueError as error:
        with pytest.raises(ValueError, match="weight"):  # which it does not take
            raise error from None
        return
    assert all(np.isfinite(x).all() for x in found)


KEPT = ["gradient_tracking", "noloco", "all_reduce+sign+ef14@two_shot"]
"""States kept in a room's common part, by a method itself, and by feedback."""


@pytest.mark.parametrize("doubles", ["params", "gradients"])
@pytest.mark.parametrize("name", KEPT)
def test_state_keeps_its_types_beside_doubles(name, doubles):
    types = ("float64", "float32") if doubles == "params" else ("float32", "float64")
    test_state_keeps_its_types_under_other_gradients(name, *types)


@pytest.mark.few(10)
@pytest.mark.parametrize(("params", "gradients"), helpers.MIXED)
@pytest.mark.parametrize("name", NAMES)
def test_state_keeps_its_types_under_other_gradients(name, params, gradients):
    tx: Any = parse(name).build("data", Training(optax.sgd(0.05), 0.05, 100, WORKERS))
    state, after, _ = helpers.traced_step(tx, WORKERS, params, gradients)
    assert helpers.kinds(after) == helpers.kinds(state)
    assert jax.tree.structure(after) == jax.tree.structure(state)


def reduced(*more: Any) -> Any:
    return optax.chain(relaxjax.all_reduce("data"), optax.adam(0.1), *more)


AROUND = {
    "skip_nonfinite": lambda: relaxjax.skip_nonfinite(reduced(), "data"),
    "participation": lambda: relaxjax.participation(reduced(), "data", 0.5),
    "accumulate": lambda: relaxjax.accumulate(reduced(), 2),
    "desynced": lambda: relaxjax.desynced(optax.adam(0.1), "data", periods=3),
    "norms_of_sums": lambda: reduced(controllers.norms_of_sums(2)),
}


@pytest.mark.parametrize(("params", "gradients"), helpers.MIXED)
@pytest.mark.parametrize("name", AROUND)
def test_wrappers_take_what_their_optimizer_takes(name, params, gradients):
    """Adam's moments are as wide as its gradients, after one step."""
    *_, updates = helpers.traced_step(AROUND[name](), WORKERS, params, gradients)
    *_, plain = helpers.traced_step(reduced(), WORKERS, params, gradients)
    assert jax.tree.structure(updates) == jax.tree.structure(plain)


def test_norms_of_doubles_keep_their_type():
    tx = controllers.norms_of_sums(2)
    state, after, _ = helpers.traced_step(tx, WORKERS, "float64", "float64")
    assert helpers.kinds(after) == helpers.kinds(state)


def test_push_sum_of_doubles_is_in_doubles():
    """z is x / w: a mass in float32 rounds it, and the rounding adds up."""
    shares = [[0.5, 0.0, 0.5], [0.25, 0.5, 0.0], [0.25, 0.5, 0.5]]
    graph = relaxjax.topology.from_column_stochastic(shares)
    tx = relaxjax.push_sum("data", graph)

    def mean(z: Any) -> Any:
        def one(carry: Any, _: Any) -> Any:
            z, state = carry
            updates, state = tx.update(jnp.zeros_like(z), state, z)
            return (z + updates, state), None

        return jax.lax.scan(one, (z, tx.init(z)), length=80)[0][0]

    with jax.enable_x64(True):
        values = jnp.array([1.0, 2.0, 6.1])
        found = np.asarray(jax.vmap(mean, axis_name="data")(values))
    np.testing.assert_allclose(found, 9.1 / 3, rtol=1e-14)


def test_lost_messages_of_complex_params_are_refused():
    """What is given away is counted in whole numbers."""
    tx = relaxjax.lossy_push_sum("data", relaxjax.topology.ring(3), 0.2)
    with pytest.raises(ValueError, match="real floating leaves only"):
        tx.init(jnp.zeros(2, jnp.complex64))


def test_no_weight_is_a_weight_of_one():
    tx = relaxjax.skip_nonfinite(reduced(), "data")
    g = jnp.arange(2.0)

    def update(g: Any, **weight: Any) -> Any:
        return tx.update(g, tx.init(g), g, **weight)[0]

    given = jax.vmap(lambda g: update(g, weight=None), axis_name="data")(g)
    helpers.assert_equal(given, jax.vmap(update, axis_name="data")(g))

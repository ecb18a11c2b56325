"""Accumulation inside of local steps, of which `init` warns, and around them."""

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import topology
from tests import helpers
from tests.helpers import assert_close

WORKERS, CALLS = 4, 2
RING, LAZY = topology.ring(WORKERS), topology.lazy(topology.ring(WORKERS))
CODE = relaxjax.compression.quantize(8)
Optimizer = Any


def after(method: Callable[..., Any], *args: Any, **how: Any) -> Callable:
    """A method that comes after the optimizer."""

    def make(opt: Optimizer, period: int) -> Optimizer:
        rest = [period if x is PERIOD else x for x in args]
        keywords = {k: period if x is PERIOD else x for k, x in how.items()}
        return optax.chain(opt, method("data", *rest, **keywords))

    return make


PERIOD = object()
FAMILY: dict[str, Callable[[Optimizer, int], Optimizer]] = {
    "local_sgd": after(relaxjax.local_sgd, PERIOD),
    "slow_momentum": after(relaxjax.slow_momentum, PERIOD),
    "asynchronous_average": after(relaxjax.asynchronous_average, PERIOD),
    "hierarchical_local_sgd": lambda opt, h: optax.chain(
        opt, relaxjax.hierarchical_local_sgd({h: "data"})
    ),
    "post_local_sgd": lambda opt, h: relaxjax.post_local_sgd(opt, "data", h, 0),
    "post_local_sgd, before its switch": lambda opt, h: relaxjax.post_local_sgd(
        opt, "data", h, 100
    ),
    **{
        method.__name__: lambda opt, h, method=method: method(opt, "data", h)
        for method in (
            relaxjax.diloco,
            relaxjax.eager_diloco,
            relaxjax.sparse_loco,
            relaxjax.streaming_diloco,
        )
    },
    "noloco": lambda opt, h: relaxjax.noloco(opt, "data", RING, h),
    "gossip": after(relaxjax.gossip, RING, every=PERIOD),
    "push_sum": after(relaxjax.push_sum, RING, every=PERIOD),
    "lossy_push_sum": after(relaxjax.lossy_push_sum, RING, 0.1, every=PERIOD),
    "exact_diffusion": after(relaxjax.exact_diffusion, LAZY, every=PERIOD),
    "moniqua": after(relaxjax.moniqua, RING, 2.0, every=PERIOD),
    "dcd_psgd": after(relaxjax.dcd_psgd, RING, CODE, every=PERIOD),
    "deep_squeeze": after(relaxjax.deep_squeeze, RING, CODE, every=PERIOD),
}
ACCUMULATIONS: dict[str, Callable[[Optimizer], Optimizer]] = {
    "accumulate": lambda tx: relaxjax.accumulate(tx, CALLS),
    "MultiSteps": lambda tx: optax.MultiSteps(tx, CALLS).gradient_transformation(),
    "MultiSteps itself": lambda tx: optax.MultiSteps(tx, CALLS),
}
OWN_STEPS = ("local_sgd", "diloco", "sparse_loco", "post_local_sgd", "gossip")
"""Whose inner steps and meetings are the same, wherever the accumulation is."""

each = pytest.mark.parametrize("name", FAMILY)
by = pytest.mark.parametrize("how", ACCUMULATIONS)
SGD = optax.sgd(0.1)


def inside(name: str, how: str, period: int) -> Optimizer:
    return FAMILY[name](ACCUMULATIONS[how](SGD), period)


@pytest.mark.few(3)
@each
@by
def test_inside_is_warned_of_with_the_remedy(name, how):
    tx, where = inside(name, how, 4), (helpers.problem(), relaxjax.emulate(WORKERS))
    method = name.partition(",")[0].replace("post_local_sgd", "local_sgd")
    says = rf"init: {method} counts calls of update.*Accumulate outermost.*{method} in"
    with pytest.warns(UserWarning, match=says):
        relaxjax.init(tx, *where)
    assert re.match(says, relaxjax.explain(tx, *where).problems[0])


@pytest.mark.few(3)
@each
@by
def test_around_is_not(name, how):
    tx: Any = ACCUMULATIONS[how](FAMILY[name](SGD, 2))
    relaxjax.init(tx, helpers.problem(), relaxjax.emulate(WORKERS))


def test_around_is_not_whatever_else_has_a_state():
    inner = relaxjax.accumulate(FAMILY["local_sgd"](SGD, 2), CALLS)
    for tx in (
        optax.chain(relaxjax.delay(1), inner),
        relaxjax.skip_nonfinite(inner, "data"),
    ):
        relaxjax.init(tx, helpers.problem(), relaxjax.emulate(WORKERS))
    reduced = optax.chain(relaxjax.all_reduce("data"), inner)
    with pytest.warns(UserWarning, match="equal before it") as said:
        relaxjax.init(reduced, helpers.problem(), relaxjax.emulate(WORKERS))
    assert len(said) == 1


@pytest.mark.parametrize("name", ["local_sgd", "diloco"])
def test_a_period_counts_calls_inside_and_steps_around(name):
    params, mesh = helpers.problem(), relaxjax.emulate(WORKERS)
    around = relaxjax.accumulate(FAMILY[name](SGD, 2), CALLS)
    counted = {1: 0, 3: 1}  # numbers of steps that send, by the last that is looked at
    for last, sends in counted.items():
        some = relaxjax.wire_bytes(around, params, mesh, steps=last + 1)
        assert bool(some) == bool(sends)
    assert relaxjax.wire_bytes(inside(name, "accumulate", 2), params, mesh, steps=2)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", OWN_STEPS)
@pytest.mark.filterwarnings("ignore:init. .* counts calls of update")
def test_around_is_what_inside_means_where_the_period_is_a_multiple(name):
    mesh = relaxjax.emulate(WORKERS)
    data = helpers.batches(8, rows=3 * WORKERS)
    within, _, _ = helpers.train(inside(name, "accumulate", 2 * CALLS), mesh, data)
    around = relaxjax.accumulate(FAMILY[name](SGD, 2), CALLS)
    found, _, _ = helpers.train(around, mesh, data)
    assert_close(found, within, 1e-5)
    assert np.abs(jax.tree.leaves(found)[0]).max() > 0


SKIPS = {
    "skip_nonfinite": lambda n: relaxjax.skip_nonfinite(
        optax.chain(relaxjax.all_reduce("data"), optax.sgd(0.1)), "data"
    ),
    "optax.apply_if_finite": lambda n: optax.chain(
        relaxjax.all_reduce("data"), optax.apply_if_finite(optax.sgd(0.1), n)
    ),
}


@pytest.mark.parametrize("name", SKIPS)
def test_what_optax_adds_up_keeps_a_nan_and_ours_does_not(name):
    """What `init` warns of: optax 0.2.8 clears by a product with 0."""
    mesh = relaxjax.emulate(2)

    def seen(tx):
        params, state = relaxjax.init(tx, {"w": jnp.ones(2)}, mesh)

        def step(p, s, x):
            g = jax.grad(lambda p: jnp.sum(p["w"]) * x.mean())(p)
            updates, s = tx.update(g, s, p)
            return optax.apply_updates(p, updates), s, {}

        train = relaxjax.data_parallel(step, mesh)
        for x in (1.0, 1.0, np.nan, 1.0, 1.0, 1.0):
            params, state, _ = train(params, state, np.full(2, x, np.float32))
        return np.asarray(params["w"])

    with pytest.warns(UserWarning, match=rf"keeps a NaN: after one, {name} leaves"):
        kept = seen(optax.MultiSteps(SKIPS[name](9), 2).gradient_transformation())
    np.testing.assert_allclose(kept, 0.9)
    np.testing.assert_allclose(seen(relaxjax.accumulate(SKIPS[name](9), 2)), 0.8)

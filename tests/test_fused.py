"""Each relaxation, as one program and operation by operation, on emulated workers.

Leaves of two dimensions are alone in their buckets, where none is copied into another
array: what a worker sends and what it adds up are then fused into one loop.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax

from relaxjax import activations, collectives, topology
from relaxjax._core._relaxation import Training
from relaxjax._names import RELAXATIONS, parse
from relaxjax.collectives import ALGORITHMS, EXACT_EXCHANGES

N, STEPS = 4, 3
SHAPES = {"a": (24, 16), "b": (16, 24)}
ALONE = 4 * 24 * 16  # bytes of a leaf
PEERS = [
    "push_sum",
    "push_sum@ring",
    "gradient_tracking",
    "atc_tracking",
    "exact_diffusion",
    "gossip",
    "gossip+identity",
    "lossy_push_sum",
]
OTHERS = sorted({*RELAXATIONS, "all_reduce+quantize8+ef14@two_shot"} - {*PEERS})
ONE, TWO = {"data": N}, {"host": 2, "device": 2}
ON_TWO = [
    "push_sum",
    "gradient_tracking",
    "atc_tracking",
    "combine_then_adapt",
    "exact_diffusion",
    "gossip",
    "quasi_global_momentum",
    "noloco",
    "local_sgd@hierarchical",
    "all_reduce@hierarchical",
    "all_reduce+quantize8@two_level",
]
"""Methods whose workers meet inside hosts, and hosts by their graph."""


def trees(seed: int, axes: Any) -> Any:
    """Values of each worker."""
    rng = np.random.default_rng(seed)
    return {
        name: jnp.asarray(rng.normal(size=(*axes.values(), *shape)), jnp.float32)
        for name, shape in SHAPES.items()
    }


def trained(name: str, axes: Any, compiled: Callable[..., Any], at_once: int) -> Any:
    """The models after some steps, `at_once` in each function that is `compiled`."""
    row, places = parse(name).row, [*axes]
    known = {"bucket_bytes": ALONE, "sync_every": 2, "periods": 2}
    how = {key: x for key, x in known.items() if key in row.options}
    period = parse(name).period(**how)
    assert period is None or row.name == "desynced" or period <= STEPS  # they meet
    training = Training(optax.sgd(0.05), 0.05, STEPS, axes[places[0]])
    axis_name = places[0] if len(places) == 1 else tuple(places)
    tx = parse(name).build(axis_name, training, **how)

    def run(gradients: Any, state: Any, params: Any) -> Any:
        for g in gradients:
            updates, state = tx.update(g, state, params)
            params = optax.apply_updates(params, updates)
        return params, state

    def mapped(function: Any) -> Any:
        for place in reversed(places):
            function = jax.vmap(function, axis_name=place)
        return compiled(function)

    params, step = trees(0, axes), mapped(run)
    state = mapped(tx.init)(params)
    each = [trees(1 + at, axes) for at in range(STEPS)]
    for at in range(0, STEPS, at_once):
        params, state = step(each[at : at + at_once], state, params)
    return params


def require_equal(name: str, axes: Any = ONE, at_once: int = 1) -> None:
    fused = trained(name, axes, jax.jit, at_once)
    for key, expected in trained(name, axes, lambda function: function, 1).items():
        np.testing.assert_allclose(fused[key], expected, rtol=2e-5, atol=2e-5)


@pytest.mark.few(8)
@pytest.mark.parametrize("name", PEERS)
def test_what_peers_send_is_whole_before_it_is_overwritten(name):
    require_equal(name)


@pytest.mark.few(8)
@pytest.mark.parametrize("name", ON_TWO)
def test_so_is_what_devices_of_a_host_have_from_each_other(name):
    """In a program of several steps params are sums that nobody else holds."""
    require_equal(name, TWO, at_once=STEPS)


@pytest.mark.few(3)
@pytest.mark.parametrize("at_once", [1, STEPS])
@pytest.mark.parametrize("name", OTHERS)
def test_a_relaxation_is_the_same_however_it_is_compiled(name, at_once):
    require_equal(name, at_once=at_once)


@pytest.mark.few(3)
@pytest.mark.parametrize("n", [2, 3, 4])
@pytest.mark.parametrize("name", [*EXACT_EXCHANGES])
def test_sums_are_of_what_came_in_behind_a_barrier_of_the_caller(name, n):
    """As a user's program may have one: XLA takes its output for what went in."""
    if ALGORITHMS[name].two_axes:
        return
    exchange = getattr(collectives, f"{name}_all_reduce", lax.psum)

    def add(x: Any, y: Any) -> Any:
        t = x + y
        sums = exchange(lax.optimization_barrier(t.ravel()), "data")
        return t + sums.reshape(t.shape)

    x = jnp.arange(6.0 * n).reshape(n, 2, 3)
    found = jax.jit(jax.vmap(add, axis_name="data"))(x, jnp.ones_like(x))
    np.testing.assert_allclose(found, x + 1 + (x + 1).sum(axis=0), rtol=1e-6)


def test_payloads_that_are_the_array_itself_are_those_that_were_sent():
    plain = collectives.Codec(lambda x, place: x, lambda payload, size, place: payload)
    ring = topology.ring(4)

    def add(x: Any, y: Any) -> Any:
        t = x + y
        _, first, _ = collectives.neighbor_payloads(t.ravel(), "data", ring, plain)
        return t + first.reshape(t.shape)

    x = jnp.arange(24.0).reshape(4, 2, 3)
    found = jax.jit(jax.vmap(add, axis_name="data"))(x, jnp.ones_like(x))
    expected = np.array(x + 1)
    for source, target in ring.messages()[0].pairs:
        expected[target] += x[source] + 1
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("name", ["send", "all_to_all"])
def test_activations_are_those_that_were_sent(name, n):
    onwards = [(i, (i + 1) % n) for i in range(n)]
    legs: dict[str, Any] = {
        "send": lambda t: activations.send(t, "data", onwards),
        "all_to_all": lambda t: activations.all_to_all(t, "data", 0, 0),
    }

    def add(x: Any, y: Any) -> Any:
        t = x + y
        behind = lax.optimization_barrier(t.ravel()).reshape(t.shape)
        return t + legs[name](behind)

    x = jnp.arange(8.0 * n * n).reshape(n, n, 2, 4)
    found = jax.jit(jax.vmap(add, axis_name="data"))(x, jnp.ones_like(x))
    moved = {"send": jnp.roll(x, 1, axis=0), "all_to_all": x.swapaxes(0, 1)}[name]
    np.testing.assert_array_equal(found, x + 1 + moved + 1)

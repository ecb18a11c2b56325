"""A loop of one's own that never calls `advance_phases` trains the same.

Every method with phases: its step then holds all phases that are to come, and takes
the one that the count has reached, under any mapping.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AxisType, PartitionSpec

import relaxjax
from relaxjax._core._phases import clocks_of
from relaxjax._core._relaxation import Training
from relaxjax._names import RELAXATIONS, parse
from relaxjax.workers import traced, workers_of

WORKERS, STEPS = 4, 6
REDUCER = functools.partial(relaxjax.all_reduce, "data")
METHODS: dict[str, Callable[[], Any]] = {
    "power_sgd": lambda: relaxjax.power_sgd(
        "data", rank=2, start_after=2, min_compression=0
    ),
    "acp_sgd": lambda: relaxjax.acp_sgd(
        "data", rank=2, start_after=2, min_compression=0
    ),
    "deep_gradient_compression": lambda: relaxjax.deep_gradient_compression(
        "data", density=0.1, warmup_densities=(0.5, 0.25), warmup_steps=2
    ),
    "one_bit_adam": lambda: relaxjax.one_bit_adam("data", 0.1, freeze_step=3),
    "one_bit_lamb": lambda: relaxjax.one_bit_lamb("data", 0.1, freeze_step=3),
    "zero_one_adam": lambda: relaxjax.zero_one_adam(
        "data", 0.1, freeze_step=2, local_doubling=1, most_local_steps=2
    ),
    "post_local_sgd": lambda: relaxjax.post_local_sgd(optax.sgd(0.1), "data", 2, 2),
    "before_step": lambda: relaxjax.before_step(REDUCER(), 3),
    "from_step": lambda: relaxjax.from_step(REDUCER(), 3),
    "by_step": lambda: relaxjax.by_step({0: REDUCER(), 3: REDUCER(algorithm="ring")}),
    "in a chain": lambda: optax.chain(
        relaxjax.before_step(relaxjax.power_sgd("data", rank=1, start_after=1), 4),
        optax.adam(0.1),
    ),
}
PARAMS = {"w": jnp.ones((6, 8)), "b": jnp.ones(5)}
OPTIMIZERS = ("one_bit", "zero_one", "post_local", "in a chain")


def gradients() -> Any:
    rng = np.random.default_rng(0)
    return {
        k: jnp.asarray(rng.normal(size=(STEPS, WORKERS, *x.shape)), jnp.float32)
        for k, x in PARAMS.items()
    }


def mapped(step: Callable[..., Any], how: str) -> Any:
    if how == "vmap":
        return jax.jit(jax.vmap(step, axis_name="data"))
    mesh = jax.make_mesh((WORKERS,), ("data",), axis_types=(AxisType.Auto,))
    spec = PartitionSpec("data")

    def local(*trees: Any) -> Any:
        inside = jax.tree.map(lambda x: x[0], trees)
        return jax.tree.map(lambda x: jnp.asarray(x)[None], step(*inside))

    return jax.jit(
        jax.shard_map(local, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    )


def train(tx: Any, how: str, advance: Callable[[Any], Any]) -> tuple[Any, Any]:
    x = jax.tree.map(lambda a: jnp.broadcast_to(a, (WORKERS, *a.shape)), PARAMS)
    state = mapped(tx.init, how)(x)

    def step(g, state, x):
        updates, state = tx.update(g, state, x)
        return optax.apply_updates(x, updates), state

    run, gs = mapped(step, how), gradients()
    for i in range(STEPS):
        g = jax.tree.map(lambda leaf, i=i: leaf[i], gs)
        x, state = jax.block_until_ready(run(g, advance(state), x))
    return x, state


@pytest.mark.long
@pytest.mark.few(3)
@pytest.mark.parametrize("how", ["vmap", "mesh"])
@pytest.mark.parametrize("name", METHODS)
def test_phases_end_though_nobody_says_so(name, how):
    tx = METHODS[name]()
    forgotten, after = train(tx, how, lambda state: state)
    advanced, _ = train(tx, how, relaxjax.advance_phases)
    for one, other in zip(*map(jax.tree.leaves, (forgotten, advanced)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    assert not any(clock.hosted for clock in clocks_of(after))


def test_a_scan_over_steps_passes_an_end():
    tx, gs = METHODS["power_sgd"](), gradients()

    def steps(gs: Any) -> Any:
        def one(state: Any, g: Any) -> Any:
            out, state = tx.update(g, state)
            return state, out

        return jax.lax.scan(one, tx.init(PARAMS), gs)[1]

    scanned = jax.jit(jax.vmap(steps, axis_name="data", in_axes=1))(gs)
    step = jax.jit(jax.vmap(tx.update, axis_name="data"))
    state = jax.vmap(tx.init, axis_name="data")(jax.tree.map(lambda g: g[0], gs))
    for i in range(STEPS):
        g = jax.tree.map(lambda leaf, i=i: leaf[i], gs)
        out, state = step(g, relaxjax.advance_phases(state))
        for key, value in out.items():
            np.testing.assert_allclose(scanned[key][:, i], value, rtol=1e-4, atol=1e-6)


@pytest.mark.long
def test_every_relaxation_with_phases_is_here():
    """A row whose state has a clock with an end is one of the methods above."""
    mesh, params = relaxjax.emulate(WORKERS), {"w": jax.ShapeDtypeStruct((64, 64), "f")}
    for name in RELAXATIONS:
        tx: Any = parse(name).build("data", Training(optax.sgd(0.1), 0.1, 100, WORKERS))
        state = traced(tx, params, workers_of(mesh, None, "test")).state
        if any(clock.ends for clock in clocks_of(state)):
            assert name in METHODS, name


def stepped(tx: Any, step: Callable[..., Any], batches: list[Any]) -> tuple[Any, Any]:
    """Params and state after a call of the step for each batch."""
    mesh = relaxjax.emulate(WORKERS)
    x, state = relaxjax.init(tx, PARAMS, mesh, reduced_in_step=True)
    run = relaxjax.data_parallel(step, mesh)
    for batch in batches:
        x, state, _ = run(x, state, batch)
    return x, state


@pytest.mark.filterwarnings("ignore:.*nothing in it brings the workers together")
@pytest.mark.few(2)
@pytest.mark.parametrize("name", METHODS)
def test_a_scan_inside_a_data_parallel_step_is_as_many_steps(name):
    """The phase ends within the scan; the next call begins in the phase it reached."""
    method = METHODS[name]()
    tx: Any = (
        method if name.startswith(OPTIMIZERS) else optax.chain(method, optax.sgd(0.1))
    )

    def one(x, state, g):
        own = jax.tree.map(lambda leaf: leaf[0], g)
        updates, state = tx.update(own, state, x)
        return optax.apply_updates(x, updates), state, {}

    def several(x, state, gs):
        def body(carry, g):
            x, state, _ = one(carry[0], carry[1], g)
            return (x, state), None

        first = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 1, 0), gs)
        (x, state), _ = jax.lax.scan(body, (x, state), first)
        return x, state, {}

    gs = gradients()
    single = [jax.tree.map(lambda g, i=i: g[i], gs) for i in range(STEPS)]
    halves = [
        jax.tree.map(lambda g, part=part: jnp.stack(g[part], axis=1), gs)
        for part in (slice(0, 4), slice(4, STEPS))
    ]
    alone, _ = stepped(tx, one, single)
    scanned, after = stepped(tx, several, halves)
    for found, right in zip(*map(jax.tree.leaves, (scanned, alone)), strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-6)
    assert max(clock.count[0] for clock in clocks_of(after)) == STEPS

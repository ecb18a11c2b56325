"""A NaN in a leaf of many elements shows, whatever the back end does to a maximum.

XLA's CPU back end drops a NaN from a maximum of floats from 4096 elements on. Every row
of the contract trains on a matrix and a vector that are longer; every compressor
encodes as much.
"""

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import compression
from relaxjax.compression import COMPRESSORS, FEEDBACKS
from tests.compression.draws import drawer
from tests.compression.test_laws import ROWS as CODES
from tests.test_contract import ROWS, WORKERS

STEPS, SHAPES = 4, {"m": (64, 80), "v": (4200,)}
BAD = (np.nan, np.inf, -np.inf)
# Their buckets hold a few elements, and make a thousand messages of these leaves.
SMALL = ("all_reduce@ring, small buckets", "parameter_server, two servers")
LARGE = {name: row.make for name, row in ROWS.items() if name not in SMALL}
LARGE |= {
    f"{code} under {feedback or 'nothing'}": functools.partial(
        lambda opt, code, feedback: optax.chain(
            relaxjax.all_reduce(
                "data", compressor=FEEDBACKS[feedback](code()) if feedback else code()
            ),
            opt,
        ),
        code=make,
        feedback=feedback,
    )
    for code, make in COMPRESSORS.items()
    for feedback in (None, "ef14")
    if not (code == "drive" and feedback)  # refused: nothing bounds what it loses
}
# The step is not taken, only worker 0 is heard, or a rule holds the worker for absent.
UNHEARD = (
    "skip_nonfinite",
    "asynchronous_diloco",
    "all_reduce, trimmed by none",
    "all_reduce, centered at a radius that never bites",
)
rows = pytest.mark.parametrize("make", LARGE.values(), ids=LARGE.keys())
codes = pytest.mark.parametrize("code", CODES.values(), ids=CODES.keys())


def trained(tx: Any, gradients: list[Any]) -> Any:
    """Params [n, ...] after a step with each of the gradients [n, ...]."""
    over = functools.partial(jax.vmap, axis_name="data")
    params = {k: jnp.zeros((WORKERS, *s)) for k, s in SHAPES.items()}
    state = over(tx.init)(params)

    @jax.jit
    @over
    def step(params, state, g):
        updates, state = tx.update(g, state, params)
        return optax.apply_updates(params, updates), state

    for g in gradients:
        params, state = step(params, state, g)
    return jax.tree.map(np.asarray, params)


def gradients() -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [
        {
            k: rng.normal(size=(WORKERS, *s)).astype(np.float32)
            for k, s in SHAPES.items()
        }
        for _ in range(STEPS)
    ]


@pytest.mark.few(12)
@rows
@pytest.mark.parametrize("leaf", SHAPES)
def test_a_nan_of_one_worker_reaches_all(make, leaf):
    bad = gradients()
    bad[0][leaf].reshape(WORKERS, -1)[1, 5] = np.nan
    out = trained(make(optax.sgd(0.1)), bad)
    models = np.concatenate([x.reshape(WORKERS, -1) for x in out.values()], axis=1)
    shown = ~np.isfinite(models).all(1)
    heard = not any(make is LARGE[name] for name in UNHEARD)
    assert shown.all() == heard, shown


def places(size: int) -> set[int]:
    """First, middle and last of a block of 128, and of the array."""
    block = min(size, 128) * (size // 256)
    return {0, size // 2, size - 1, block, min(size - 1, block + 127)}


@pytest.mark.few(12)
@codes
def test_no_code_hides_what_is_not_finite_or_turns_its_sign(code):
    draw = drawer(code.make(), draws=1)
    for size in (1, 127, 4096, 65_536):
        sound = np.random.default_rng(size).uniform(0.5, 1, size).astype(np.float32)
        for bad, place in itertools.product(BAD, places(size)):
            x = sound.copy()
            x[place] = bad
            out = draw(x)[0]
            assert not np.isfinite(out).all(), (size, bad, place)
            turned = np.isinf(out[place]) and out[place] == -bad
            assert not turned, (size, bad, place)


def reductions(jaxpr: Any) -> Iterator[str]:
    """The names of all maxima and minima of floats along an axis, inside too."""
    for eqn in jaxpr.eqns:
        kind = eqn.primitive.name
        floats = any(jnp.issubdtype(v.aval.dtype, jnp.floating) for v in eqn.invars)
        if floats and kind in ("reduce_max", "reduce_min", "pmax", "pmin"):
            yield kind
        for inner in jax.tree.leaves(
            list(eqn.params.values()), is_leaf=lambda x: hasattr(x, "eqns")
        ):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                yield from reductions(inner)


@pytest.mark.few(24)
@rows
def test_no_transformation_takes_the_maximum_of_floats(make):
    tx = make(optax.sgd(0.1))
    params = {k: jnp.zeros((WORKERS, *s)) for k, s in SHAPES.items()}

    def update(g, params):
        return tx.update(g, tx.init(params), params)

    traced = jax.make_jaxpr(jax.vmap(update, axis_name="data"))(params, params)
    assert list(reductions(traced.jaxpr)) == []


def test_a_spread_that_is_no_number_is_not_one():
    for size in (127, 4096, 65_536):
        x = np.zeros((2, size), np.float32)
        x[1, 3] = np.nan
        assert np.isnan(relaxjax.spread({"w": jnp.asarray(x)})), size


def test_the_walk_finds_a_maximum_inside_a_loop():
    def inside(x):
        return jax.lax.fori_loop(0, 3, lambda i, x: x - jnp.max(x), x)

    found = list(reductions(jax.make_jaxpr(inside)(np.ones(4, np.float32)).jaxpr))
    assert found == ["reduce_max"]
    assert not list(reductions(jax.make_jaxpr(jnp.max)(np.ones(4, np.int32)).jaxpr))


def test_over_largest_is_sound_or_not_a_number():
    unit, scale = compression.over_largest(jnp.array([[1.0, -4.0], [jnp.inf, 1.0]]))
    np.testing.assert_array_equal(scale, [[4], [np.nan]])
    np.testing.assert_array_equal(unit[0], [0.25, -1])
    assert np.isnan(unit[1]).all()

"""One model from many, and how far apart they are, against numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaxjax import (
    consensus,
    consensus_distance,
    emulate,
    fsdp,
    spread,
    to_workers,
)
from tests.helpers import mesh_of


@pytest.mark.slow
@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    n=st.integers(1, 12),
    size=st.integers(0, 5),
    dtype=st.sampled_from([np.float32, np.float16, jnp.bfloat16]),
    seed=st.integers(0, 100),
)
def test_mean_and_range(n, size, dtype, seed):
    x = np.random.default_rng(seed).normal(size=(n, size)).astype(dtype)
    wide = x.astype(np.float64)
    got = np.asarray(consensus({"x": jnp.asarray(x)})["x"], np.float64)
    tolerance = 1e-6 if dtype == np.float32 else 1e-2
    np.testing.assert_allclose(got, wide.mean(0), rtol=tolerance, atol=tolerance)
    apart = np.max(wide.max(0) - wide.min(0), initial=0.0)
    assert spread({"x": jnp.asarray(x)}) == pytest.approx(apart, rel=1e-6)


@pytest.mark.few(3)
@pytest.mark.parametrize("n", range(1, 13))
def test_equal_values_have_exactly_that_mean(n):
    x = np.random.default_rng(n).normal(size=50).astype(np.float32)
    stacked = to_workers(x, emulate(n))
    np.testing.assert_array_equal(consensus(stacked), x)
    assert spread(stacked) == 0.0


def test_infinities_that_are_equal_stay():
    """As in a mask; NaN is where a worker holds one, or infinities of both signs."""
    mask = np.array([0.0, -np.inf, np.inf, 1.0], np.float32)
    stacked = to_workers(mask, emulate(4))
    np.testing.assert_array_equal(consensus(stacked), mask)
    assert spread(stacked) == 0.0
    assert consensus_distance(stacked) == 0.0
    apart = jnp.asarray([[-jnp.inf, jnp.inf, 3e38, jnp.nan], [1.0, -jnp.inf, -3e38, 1]])
    np.testing.assert_array_equal(consensus(apart), [-np.inf, np.nan, 0.0, np.nan])
    assert spread(apart[:, :1]) == np.inf
    assert np.isnan(spread(apart[:, 3:]))
    assert not np.isfinite(consensus_distance(apart[:, :1]))


def test_a_mean_of_large_numbers_is_no_infinity():
    large = np.array([[3e38], [3e38], [3e38], [-3e38]], np.float32)
    np.testing.assert_allclose(consensus(jnp.asarray(large)), [1.5e38], rtol=1e-6)


def test_not_floats_are_worker_zeros():
    out = consensus({"i": jnp.array([3, 4]), "b": jnp.array([True, False])})
    assert int(out["i"]) == 3
    assert bool(out["b"])


def test_keys():
    keys = to_workers(jax.random.key(0), emulate(3))
    assert spread({"k": keys}) == 0.0
    assert jnp.issubdtype(consensus(keys).dtype, jax.dtypes.prng_key)


def test_spread_of_other_kinds():
    assert spread(jnp.array([1, 4, 2])) == 3.0
    assert spread(jnp.array([2**24, 2**24 + 1])) == 1.0  # equal as float32
    assert spread(jnp.array([False, True])) == 1.0
    assert spread(jnp.array([1 + 1j, 1 - 2j], jnp.complex64)) == 3.0
    assert np.isnan(spread(jnp.array([1.0, jnp.nan])))
    assert spread({}) == 0.0
    assert spread({"empty": jnp.zeros((3, 0))}) == 0.0


@pytest.mark.parametrize("apart", [1e-12, 1e-60, 1e300])
def test_spread_of_doubles_is_one_of_doubles(apart):
    """Float32 has no such number: it would be 0, or the difference of infinities."""
    with jax.enable_x64(True):
        low = 1.0 if apart == 1e-12 else apart
        x = jnp.array([low, low + apart], jnp.float64)
        assert spread({"narrow": jnp.zeros(2), "x": x}) == float(x[1] - x[0]) > 0
        z = jnp.array([0, 1j], jnp.complex128) * apart
        assert spread(z) == apart


def test_on_a_mesh_the_model_is_on_one_device():
    model = consensus(to_workers({"w": np.ones(3, np.float32)}, mesh_of(4)))
    assert len(model["w"].devices()) == 1
    np.testing.assert_array_equal(model["w"], [1, 1, 1])


def test_distance_is_the_root_of_the_mean_square():
    rng = np.random.default_rng(0)
    tree = {"a": rng.normal(size=(5, 3)), "b": rng.normal(size=(5, 2, 2)) + 100}
    flat = np.concatenate([x.reshape(5, -1) for x in tree.values()], axis=1)
    apart = np.linalg.norm(flat - flat.mean(axis=0), axis=1)
    expected = np.sqrt((apart**2).mean())
    tree = {**jax.tree.map(jnp.float32, tree), "count": jnp.arange(5)}
    assert consensus_distance(tree) == pytest.approx(expected, rel=1e-5)


def test_distance_of_equal_workers_is_zero():
    x = np.random.default_rng(0).normal(size=50).astype(np.float32)
    for n in (3, 5, 7, 11):
        assert consensus_distance(to_workers(x, emulate(n))) == 0.0
    assert consensus_distance({}) == 0.0
    assert np.isnan(consensus_distance(jnp.array([1.0, jnp.nan])))


def test_state_that_was_brought_to_the_host():
    tree = {"w": np.array([[1.0, 2.0], [3.0, 2.0]], np.float32)}
    np.testing.assert_array_equal(consensus(tree)["w"], [2.0, 2.0])
    shards, _ = fsdp.init(optax.sgd(1.0), {"w": np.arange(5.0)}, emulate(2))
    np.testing.assert_array_equal(
        consensus(jax.device_get(shards))["w"], np.arange(5.0)
    )


@pytest.mark.parametrize("where", [emulate(4), mesh_of(4)], ids=["emulated", "mesh"])
def test_a_model_inside_of_jit(where):
    stacked = to_workers({"w": jnp.arange(3.0), "n": 5}, where)
    stacked["w"] += jnp.arange(4.0)[:, None]
    jax.tree.map(
        np.testing.assert_array_equal, jax.jit(consensus)(stacked), consensus(stacked)
    )
    slope = jax.grad(lambda w: consensus({**stacked, "w": w})["w"].sum())
    np.testing.assert_array_equal(slope(stacked["w"]), np.full((4, 3), 0.25))

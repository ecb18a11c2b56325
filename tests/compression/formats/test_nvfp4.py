"""NVFP4 to the bit, and at the ends of float32."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from relaxjax import compression
from tests.golden import references

GOLDEN = [1.9, -1.0, 0.3, 0.01]


def coded(x):
    payload = jax.jit(compression.nvfp4().compress)(x, None)
    return payload, np.asarray(compression.nvfp4().decompress(payload, x.size, None))


def test_golden_blocks():
    alone, decoded = coded(jnp.float32(GOLDEN + [0] * 12))
    assert alone.scale.tolist() == [126]  # 448
    np.testing.assert_allclose(alone.most / 2688, [7.068452e-4], 1e-6)
    assert compression.unpack(alone.codes, 4, 4).tolist() == [7, 13, 2, 0]
    np.testing.assert_allclose(decoded[:4], [1.9, -0.95, 0.316667, 0], 2e-6)
    beside, decoded = coded(jnp.float32(GOLDEN + [0] * 12 + [38] * 16 + [1e-5] * 16))
    assert beside.scale.tolist() == [91, 126, 0]  # 22, 448, and too small for a scale
    np.testing.assert_allclose(decoded[:4], [1.86607, -0.93304, 0.31101, 0], 1e-5)
    assert not decoded[32:].any()


@pytest.mark.parametrize("size", [1, 15, 16, 500])
@pytest.mark.parametrize("power", [-100, 0, 120])
def test_codes_and_scales_are_those_of_plain_numpy(size, power):
    rng = np.random.default_rng(size)
    x = rng.normal(size=size) * 2.0 ** rng.integers(-6, 1, size)
    x = (x * 2.0**power).astype(np.float32)
    payload, decoded = coded(jnp.asarray(x))
    expected = references.nvfp4({}, x.tolist())
    np.testing.assert_array_equal(payload.scale, expected["scale"])
    codes = compression.unpack(payload.codes, 4, size)
    np.testing.assert_array_equal(codes, expected["codes"])
    np.testing.assert_allclose(decoded, expected["decoded"], 1e-6, 2.0**-126)


@pytest.mark.parametrize("most", [2.0**-126, 3.4e38])
def test_the_largest_is_exact_at_both_ends(most):
    _, decoded = coded(jnp.float32([most, -most, 0]))
    assert decoded.tolist() == np.asarray([most, -most, 0], np.float32).tolist()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_shows_in_all(bad):
    _, decoded = coded(jnp.ones(5000).at[4500].set(bad))
    assert np.isnan(decoded).all()


@pytest.mark.long
def test_gaussian_elements_lose_what_is_known():
    x = np.random.default_rng(0).normal(size=1 << 18).astype(np.float32)
    _, decoded = coded(jnp.asarray(x))
    assert np.sum((decoded - x) ** 2) / np.sum(x**2) == pytest.approx(9.1e-3, rel=0.05)


def test_zeros_stay():
    payload, decoded = coded(jnp.zeros(40))
    assert not decoded.any()
    assert not payload.codes.any()

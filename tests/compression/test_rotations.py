"""Rotations around a code: what the shared laws cannot see."""

import jax.numpy as jnp
import numpy as np
import pytest

from relaxjax import compression

TOP = np.finfo(np.float32).max


@pytest.mark.long
@pytest.mark.few(4)
@pytest.mark.parametrize("rotation", [compression.rotated, compression.in_cosines])
def test_the_largest_floats_come_back_finite(rotation):
    """A rounding up of what is nearly the largest float would be infinite."""
    rng = np.random.default_rng(0)
    sizes = np.where(rng.random(64) < 0.5, 1, rng.random(64))
    x = jnp.asarray(TOP * np.sign(rng.normal(size=64)) * sizes, jnp.float32)
    code = rotation(compression.quantize(4))
    assert jnp.isfinite(compression.roundtrip(code, x)).all()
    assert not jnp.isfinite(compression.roundtrip(code, x * jnp.inf)).any()

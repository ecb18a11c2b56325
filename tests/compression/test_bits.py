"""Codes packed into bytes, against numpy."""

import jax.numpy as jnp
import numpy as np
import pytest

from relaxjax.compression._bits import pack, packed_bytes, unpack


@pytest.mark.few(2)
@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 7, 8, 12, 17, 24])
@pytest.mark.parametrize("count", [0, 1, 2, 7, 8, 9, 40])
def test_codes_lie_one_after_the_other_and_come_back(width, count):
    rng = np.random.default_rng(width)
    codes = rng.integers(0, 2**width, size=(3, count))
    packed = np.asarray(pack(jnp.asarray(codes, jnp.uint32), width))
    assert packed.shape == (3, packed_bytes(count, width))
    bits = ((codes[..., None] >> np.arange(width)) & 1).astype(np.uint8)
    expected = np.packbits(bits.reshape(3, -1), axis=-1, bitorder="little")
    np.testing.assert_array_equal(packed, expected)
    np.testing.assert_array_equal(unpack(jnp.asarray(packed), width, count), codes)

"""Microscaling beside Microsoft's reference, value by value.

`python3 scripts/check.py --peers` clones microsoft/microxcaling at commit 7bc4195. It
has the specification's own rule of scales alone, and MXINT8, which torchao has not.
"""

import jax.numpy as jnp
import numpy as np
import pytest

from relaxjax import compression
from tests.compression.formats.test_mx import spread

mx_ops = pytest.importorskip("mx.mx_ops")
torch = pytest.importorskip("torch")
ELEMENTS = {
    "e4m3": "fp8_e4m3",
    "e5m2": "fp8_e5m2",
    "e3m2": "fp6_e3m2",
    "e2m3": "fp6_e2m3",
    "e2m1": "fp4_e2m1",
    "int8": "int8",
}


def theirs(element: str, x: np.ndarray) -> np.ndarray:
    """What its codes stand for."""
    rows = torch.from_numpy(x).reshape(-1, 32)
    found = mx_ops._quantize_mx(
        rows,
        8,  # bits of a scale
        elem_format=ELEMENTS[element],
        axes=[-1],
        block_size=32,
        round="even",
    )
    return found.numpy().reshape(-1)


def decoded(element: str, x: np.ndarray) -> np.ndarray:
    """The same here."""
    code = compression.mx(element, scale="floor")
    return np.asarray(compression.roundtrip(code, jnp.asarray(x)))


@pytest.mark.parametrize("element", ELEMENTS)
def test_microxcaling_decodes_to_the_same_values(element):
    x = spread(5, 32 * 2000)
    x[32:64] = 0
    ours = decoded(element, x)
    np.testing.assert_array_equal(ours, theirs(element, x))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("element", ELEMENTS)
def test_a_nan_or_an_infinity_takes_its_block_along_there_too(element, bad):
    x = np.ones(64, np.float32)
    x[3] = bad
    ours = decoded(element, x)
    np.testing.assert_array_equal(ours, theirs(element, x))
    np.testing.assert_array_equal(np.isnan(ours), [True] * 32 + [False] * 32)

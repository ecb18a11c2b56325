"""Inputs that compressors must survive, and their sizes."""

import pytest

from relaxjax.check._samples import inputs, named_inputs

__all__ = ["SIZES", "inputs", "named_inputs", "sizes"]

SIZES = (1, 2, 7, 64, 1000, 4099)
# As a parameter; at 64 blocks just fit, at 1000 and 4099 the last is cut short.
sizes = pytest.mark.parametrize(
    "size",
    [
        pytest.param(size, marks=[pytest.mark.slow] if size in (2, 1000) else [])
        for size in SIZES
    ],
)

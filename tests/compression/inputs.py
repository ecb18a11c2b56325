"""Inputs that compressors must survive, and rows for what each declares."""

from collections.abc import Iterator

import numpy as np
import pytest

SIZES = (1, 2, 7, 64, 1000, 4099)
# As a parameter; at 64 blocks just fit, at 1000 and 4099 the last is cut short.
sizes = pytest.mark.parametrize(
    "size",
    [
        pytest.param(size, marks=[pytest.mark.slow] if size in (2, 1000) else [])
        for size in SIZES
    ],
)


def named_inputs(size: int) -> Iterator[tuple[str, np.ndarray]]:
    """float32[size] of every kind that has broken a compressor somewhere."""
    rng = np.random.default_rng(size)
    gauss = rng.normal(size=size)
    yield "gauss", gauss
    yield "zero", np.zeros(size)
    yield "negative zero", -np.zeros(size)
    yield "constant", np.full(size, -0.7)
    yield "one hot", np.eye(1, size, size // 2)[0] * 3
    yield "heavy tail", gauss**3 * np.exp(3 * rng.normal(size=size))
    yield "all negative", -np.abs(gauss)
    yield "offset", 1e4 + gauss
    yield "tiny", gauss * 1e-30
    yield "subnormal", gauss * 1e-40
    yield "huge", gauss * 1e30


def inputs(size: int) -> Iterator[tuple[str, np.ndarray]]:
    for name, x in named_inputs(size):
        with np.errstate(under="ignore"):
            yield name, x.astype(np.float32)

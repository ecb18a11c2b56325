"""Inputs that compressors must survive; each kind has broken one somewhere."""

from collections.abc import Iterator

import numpy as np

# Below, at and above what fits in blocks of 64; the last block of 1000 is cut short.
SIZES = (1, 2, 7, 64, 1000)


def named_inputs(size: int) -> Iterator[tuple[str, np.ndarray]]:
    """Float64 of each kind, by name, before they are rounded."""
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
    yield "integers", np.round(3 * gauss)


def inputs(size: int) -> Iterator[tuple[str, np.ndarray]]:
    """float32[size] of each kind, by name."""
    for name, x in named_inputs(size):
        with np.errstate(under="ignore"):
            yield name, x.astype(np.float32)

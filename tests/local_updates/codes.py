"""Compressors of outer gradients, and the same in numpy."""

from typing import Any

import numpy as np

from relaxjax import compression


def exactly(p: np.ndarray) -> np.ndarray:
    return p


def signs(p: np.ndarray) -> np.ndarray:
    return np.abs(p).mean() * np.where(p < 0, -1, 1)


# Compressor, algorithm, what arrives.
CODES: Any = {
    "exact": (None, "auto", exactly),
    "sign": (compression.error_feedback(compression.sign()), "one_shot", signs),
}

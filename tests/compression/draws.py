"""Compressors run by hand, and the numpy they are compared with."""

import jax
import jax.numpy as jnp
import numpy as np

from relaxjax._core._random import Keys, fold, key_words
from relaxjax.check._samples import decoded, drawer, squared
from relaxjax.compression import Compressor

__all__ = ["decoded", "drawer", "largest_k", "noise_of", "once", "squared"]


def noise_of(seed: int) -> Keys:
    words = key_words(seed)
    return Keys(shared=words, own=fold(words, 1))


def once(compressor: Compressor, x: np.ndarray, seed: int = 0) -> np.ndarray:
    noise = noise_of(seed) if compressor.random else None
    run = jax.jit(lambda x, noise: decoded(compressor, x, noise))
    return np.asarray(run(jnp.asarray(x), noise), np.float64)


def largest_k(x: np.ndarray, k: int) -> np.ndarray:
    """The k largest kept; of equal ones those that come first."""
    order = sorted(range(len(x)), key=lambda i: (-abs(x[i]), i))
    out = np.zeros_like(x)
    for i in order[:k]:
        out[i] = x[i]
    return out

"""Compressors run by hand: one array, many seeds."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from relaxjax._core._random import Keys, fold, key_words
from relaxjax.compression import Compressor


def noise_of(compressor: Compressor, seed: int) -> Keys | None:
    """What a random compressor draws from; None for a deterministic one."""
    words = key_words(seed)
    return Keys(shared=words, own=fold(words, 1)) if compressor.random else None


def decoded(compressor: Compressor, x: jax.Array, noise: Keys | None) -> jax.Array:
    """What the receiver sees of x, float32[d]."""
    return compressor.decompress(compressor.compress(x, noise), x.size, noise)


@functools.cache
def words_for(draws: int) -> tuple[np.ndarray, np.ndarray]:
    """Shared and own words of each draw, uint32[draws, 2]."""

    @jax.jit
    def of_each(i):
        words = jax.vmap(lambda i: fold(key_words(0), i))(i)
        return words, jax.vmap(lambda w: fold(w, 1))(words)

    words, own = of_each(jnp.arange(draws))
    return np.asarray(words), np.asarray(own)


def drawer(compressor: Compressor, draws: int) -> Callable[[np.ndarray], np.ndarray]:
    """A compiled function of x: float64[draws, d], the decoded array for as many seeds.

    A deterministic compressor gives one row.
    """
    words, own = words_for(draws)

    @jax.jit
    def run(x):
        if not compressor.random:
            return decoded(compressor, x, None)[None]
        draw = jax.vmap(lambda s, o: decoded(compressor, x, Keys(s, o)))
        return draw(words, own)

    return lambda x: np.asarray(run(x), np.float64)


def squared(x: np.ndarray) -> np.ndarray:
    """Squared norms along the last axis, float64."""
    return np.sum(np.asarray(x, np.float64) ** 2, axis=-1)

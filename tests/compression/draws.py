"""Compressors run by hand, and the numpy they are compared with."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from relaxjax._noise import Noise, fold, words_of
from relaxjax.compression import Compressor


def noise_of(seed: int) -> Noise:
    words = words_of(seed)
    return Noise(shared=words, own=fold(words, 1))


def decoded(compressor: Compressor, x: jax.Array, noise: Noise | None) -> jax.Array:
    return compressor.decompress(compressor.compress(x, noise), x.size, noise)


def once(compressor: Compressor, x: np.ndarray, seed: int = 0) -> np.ndarray:
    noise = noise_of(seed) if compressor.random else None
    return np.asarray(decoded(compressor, jnp.asarray(x), noise), np.float64)


@functools.cache
def words_for(draws: int) -> tuple[np.ndarray, np.ndarray]:
    """Shared and own words of each draw."""

    @jax.jit
    def of_each(i):
        words = jax.vmap(lambda i: fold(words_of(0), i))(i)
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
        draw = jax.vmap(lambda s, o: decoded(compressor, x, Noise(s, o)))
        return draw(words, own)

    return lambda x: np.asarray(run(x), np.float64)


def squared(x: np.ndarray) -> np.ndarray:
    return np.sum(np.asarray(x, np.float64) ** 2, axis=-1)


def largest_k(x: np.ndarray, k: int) -> np.ndarray:
    """The k largest kept; of equal ones those that come first."""
    order = sorted(range(len(x)), key=lambda i: (-abs(x[i]), i))
    out = np.zeros_like(x)
    for i in order[:k]:
        out[i] = x[i]
    return out

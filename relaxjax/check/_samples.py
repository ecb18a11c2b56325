"""Compressors run on one array, with many seeds."""

import functools
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np

from relaxjax._core._random import Keys, fold, key_words
from relaxjax.compression import Compressor


def noise_of(compressor: Compressor, seed: int) -> Keys | None:
    """The keys that a random compressor draws from; None for a deterministic one."""
    words = key_words(seed)
    return Keys(shared=words, own=fold(words, 1)) if compressor.random else None


def decoded(compressor: Compressor, x: jax.Array, noise: Keys | None) -> jax.Array:
    """What the receiver decodes of x, float32[d]."""
    return compressor.decompress(compressor.compress(x, noise), x.size, noise)


@functools.cache
def _keys(draws: int) -> Keys:
    """The keys of each draw, uint32[draws, 2]."""

    @jax.jit
    def keys_of(i):
        words = jax.vmap(lambda i: fold(key_words(0), i))(i)
        return Keys(words, jax.vmap(lambda w: fold(w, 1))(words))

    return jax.tree.map(np.asarray, keys_of(jnp.arange(draws)))


def drawer(compressor: Compressor, draws: int) -> Callable[[np.ndarray], np.ndarray]:
    """A compiled function of x: float64[draws, d], the decoded array for as many seeds.

    A deterministic compressor gives one row.
    """
    keys = _keys(draws)

    @jax.jit
    def run(x):
        if not compressor.random:
            return decoded(compressor, x, None)[None]
        return jax.vmap(lambda noise: decoded(compressor, x, noise))(keys)

    return lambda x: np.asarray(run(x), np.float64)


def squared(x: np.ndarray) -> np.ndarray:
    """Squared norms along the last axis, float64."""
    return np.sum(np.asarray(x, np.float64) ** 2, axis=-1)


# Below, at and above what fits in blocks of 64, the last one cut short; and more than
# an index of 16 bits can tell apart.
SIZES = (1, 2, 7, 64, 1000, 100_000)
_MOST = 2**20  # elements that are drawn of one input


def draws_of(size: int, draws: int) -> int:
    """How often an input of this size is drawn: less often if it is large."""
    return max(1, min(draws, _MOST // max(1, size)))


def named_inputs(size: int) -> Iterator[tuple[str, np.ndarray]]:
    """Each kind's name and float64[size], before it is rounded."""
    rng = np.random.default_rng(size)
    gauss = rng.normal(size=size)
    yield "gauss", gauss
    yield "zero", np.zeros(size)
    yield "negative zero", -np.zeros(size)
    yield "constant", np.full(size, -0.7)
    yield "one hot", 3.0 * (np.arange(size) == 2 * size // 3)
    yield "heavy tail", gauss**3 * np.exp(3 * rng.normal(size=size))
    yield "all negative", -np.abs(gauss)
    yield "offset", 1e4 + gauss
    yield "tiny", gauss * 1e-30
    yield "subnormal", gauss * 1e-40
    yield "huge", gauss * 1e30
    yield "largest", gauss / np.abs(gauss).max() * 1e38
    yield "integers", np.round(3 * gauss)


def inputs(size: int) -> Iterator[tuple[str, np.ndarray]]:
    """Each kind's name and float32[size]."""
    for name, x in named_inputs(size):
        with np.errstate(under="ignore"):
            yield name, x.astype(np.float32)

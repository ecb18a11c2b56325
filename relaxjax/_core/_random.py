"""Random bits from a counter: fast, and the same on CPU, GPU and under `jax.vmap`.

Source: the two-round multiply-xorshift mixer of Wellons, "Prospecting for hash
functions" (2018; constants of its `lowbias32`), with a word of the key added before
each round. For element i and a key of two words (s, t):

    h = mix(i xor s),  mix(x): x ^= x >> 16; x *= 0x7feb352d; x += t; x ^= x >> 15;
                               x *= 0x846ca68b; x ^= x >> 16

Two multiplications per element, where `jax.random` takes some twenty rounds. Not for
cryptography; good enough for rounding and for masks (tests/core/test_random.py).
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from relaxjax._core._pieces import cut

_FIRST = 0x7FEB352D
_SECOND = 0x846CA68B
_GOLDEN = 0x9E3779B9
COMMON = "threefry2x32"


class Keys(NamedTuple):
    """The keys that a random compressor draws from in one call, uint32[2] each."""

    shared: jax.Array  # by all workers, for masks that sender and receiver agree on
    own: jax.Array  # of this worker, for rounding


def key_words(seed: int | jax.Array) -> jax.Array:
    """uint32[2] from an integer seed, or from a typed or raw `jax.random` key."""
    if isinstance(seed, int | np.integer):
        return fold(jnp.ones(2, jnp.uint32), np.uint32(int(seed) & 0xFFFFFFFF))
    if jnp.issubdtype(seed.dtype, jnp.integer) and not seed.ndim:
        return fold(jnp.ones(2, jnp.uint32), seed)
    if jnp.issubdtype(seed.dtype, jax.dtypes.prng_key):
        seed = jax.random.key_data(seed)
    words = jnp.full(2, _GOLDEN, jnp.uint32)
    for word in seed.ravel().astype(jnp.uint32):
        words = fold(words, word)
    return words


def fold(words: jax.Array, number: int | np.uint32 | jax.Array) -> jax.Array:
    """uint32[2]: another key, for a step, worker, bucket or stage by its number."""
    number = jnp.asarray(number).astype(jnp.uint32)
    first = _mix(number * jnp.uint32(_GOLDEN) ^ words[0], words[1])
    return jnp.stack([first, _mix(first ^ words[1], words[0] + jnp.uint32(_GOLDEN))])


def bits(words: jax.Array, size: int) -> jax.Array:
    """uint32[size], uniform."""
    return hash_words(jax.lax.iota(jnp.uint32, size), words)


def uniform(words: jax.Array, size: int) -> jax.Array:
    """float32[size], uniform in [0, 1): multiples of 2^-24."""
    return (bits(words, size) >> 8).astype(jnp.float32) * jnp.float32(2**-24)


def common_key(seed: int) -> jax.Array:
    """A key of `jax.random`, whose draws are the same on all workers.

    Of `rbg`, which may be JAX's default, equal keys draw other bits under `jax.vmap`.
    """
    return jax.random.key(seed, impl=COMMON)


def normals(key: jax.Array, shapes: Sequence[tuple[int, ...]]) -> list[jax.Array]:
    """float32 arrays, standard normal, cut from one draw from a key of `jax.random`.

    XLA on CPU compiles a draw for a quarter of a second, and a model has hundreds; out
    of a loop, here of two halves, it does not repeat the draw for each array. The loop
    takes the keys as numbers: `jax_debug_key_reuse` (jax 0.10.2 to 0.12.0.1) holds the
    keys of a loop under `jax.vmap` for used before it.
    """
    half = -(-sum(map(math.prod, shapes)) // 2)
    kind = jax.random.key_impl(key)

    def draw(numbers: jax.Array) -> jax.Array:
        one = jax.random.wrap_key_data(numbers, impl=kind)
        return jax.random.normal(one, (half,), jnp.float32)

    halves = jax.lax.map(draw, jax.random.key_data(jax.random.split(key, 2)))
    return cut(halves.reshape(-1), shapes)


def hash_words(x: jax.Array, words: jax.Array) -> jax.Array:
    """uint32 of the shape of `x`, each element scrambled by itself."""
    return _mix(x ^ words[0], words[1])


def _mix(x: jax.Array, t: jax.Array) -> jax.Array:
    x = (x ^ (x >> 16)) * jnp.uint32(_FIRST) + t
    x = (x ^ (x >> 15)) * jnp.uint32(_SECOND)
    return x ^ (x >> 16)

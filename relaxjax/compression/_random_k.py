"""Random-k: elements drawn alike on all workers, so that no index is sent.

Source: random-k with a shared seed (Stich et al. 2018, Wangni et al. 2018), and the
random block of Vogels et al. 2019. For a set S of k of the d elements, drawn from the
noise that workers share, such that each element has the chance k / d:

    C(x)_i = (d / k) x_i if i in S, else 0
    E C(x) = x,  E |C(x) - x|^2 = (d / k - 1) |x|^2 (exactly)

Error feedback divides by 1 + omega = d / k: then C is the projection on S, which loses
the share 1 - k / d of |x|^2 in expectation.

random_k: k neighboring strata of floor(d / k) or one more elements, one element out of
each, all turned around the ring of d elements by one uniform r. Before the turn the
chances sum to k, and the turn spreads them evenly, to k / d each. (Whatever is drawn is
a remainder of 32 bits, which adds a relative d / 2^32 at most.)
random_block: k neighbors on that ring, from a uniform start.

Cost: 4 k bytes. The values are NaN if any element, sent or not, is not finite. Where
(d / k) x_i is out of float32's range, it is the largest float, and the mean is not x.
"""

import jax
import jax.numpy as jnp

from relaxjax._core._random import bits
from relaxjax.compression._protocol import Compressor, Law
from relaxjax.compression._scaling import saturated
from relaxjax.compression._top_k import check_density, count_of


def random_k(density: float) -> Compressor:
    """Elements at random positions, spread over the whole array.

    Args:
      density: share of the elements that is sent, in (0, 1]; rounded up to a whole
        number of elements, at least one.

    Returns:
      A random linear compressor, unbiased; under error feedback, a projection.

    Raises:
      ValueError: `density` is not in (0, 1].

    Example:
      >>> import jax.numpy as jnp
      >>> from relaxjax import compression
      >>> out = compression.roundtrip(compression.random_k(0.25), jnp.ones(8), key=0)
      >>> print(jnp.sort(out))
      [0. 0. 0. 0. 0. 0. 4. 4.]
    """
    return _sample("random_k", density, _one_of_each_stratum)


def random_block(density: float) -> Compressor:
    """One block of neighbors from a random start; the end goes on at the beginning.

    Faster to read and write than `random_k`, but neighbors are alike in most arrays.

    Args:
      density: share of the elements that is sent, see `random_k`.

    Returns:
      A random linear compressor, unbiased; under error feedback, a projection.

    Raises:
      ValueError: `density` is not in (0, 1].

    Example:
      >>> import jax.numpy as jnp
      >>> from relaxjax import compression
      >>> out = compression.roundtrip(compression.random_block(0.5), jnp.ones(4), key=0)
      >>> print(jnp.sort(out))
      [0. 0. 2. 2.]
    """
    return _sample("random_block", density, _neighbors)


def _sample(name, density, positions):
    """A compressor that sends the elements at `positions(size, k, words)`."""
    check_density(density, name)

    def compress(x, noise):
        k = count_of(density, x.size)
        if k == 0:
            return x
        values = x[positions(x.size, k, noise.shared)]
        return jnp.where(jnp.sum(_nothing(x)) == 0, values, jnp.nan)

    def decompress(payload, size, noise):
        (k,) = payload.shape
        if k == 0:
            return payload
        scaled = saturated(payload * jnp.float32(size / k), payload)
        chosen = positions(size, k, noise.shared)
        return jnp.zeros(size, scaled.dtype).at[chosen].set(scaled, unique_indices=True)

    law = Law(omega=lambda d: d / count_of(density, d) - 1 if d else 0.0, linear=True)
    return Compressor(name, compress, decompress, law, random=True, algorithm="psum")


def _nothing(x: jax.Array) -> jax.Array:
    """0 for what is finite, else NaN.

    On CPU x * 0 would read the zeros of the decoder's scatter as well.
    """
    return jax.lax.platform_dependent(x, cpu=lambda x: x - x, default=lambda x: x * 0)


def _one_of_each_stratum(size: int, k: int, words: jax.Array) -> jax.Array:
    """int32[k], without overflow below 2^31 elements."""
    draws = bits(words, k + 1)
    stratum = jax.lax.iota(jnp.uint32, k)
    short, longer = divmod(size, k)  # the first strata have one element more
    length = short + (stratum < longer).astype(jnp.uint32)
    start = stratum * short + jnp.minimum(stratum, longer)
    turn = draws[k] % size
    return ((start + draws[:k] % length + turn) % size).astype(jnp.int32)


def _neighbors(size: int, k: int, words: jax.Array) -> jax.Array:
    start = bits(words, 1) % size
    return ((start + jax.lax.iota(jnp.uint32, k)) % size).astype(jnp.int32)

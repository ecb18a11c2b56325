"""What the receiver sees of an array, and how many bytes its payload has."""

import jax
import jax.numpy as jnp

from relaxjax._core._random import Keys, fold, key_words
from relaxjax.compression._protocol import Compressor


def roundtrip(
    compressor: Compressor, x: jax.Array, key: int | jax.Array | None = None
) -> jax.Array:
    """What the receiver would see of `x`, in a first step.

    Args:
      compressor: any compressor, with feedback or without.
      x: a real floating array of any shape.
      key: a seed or a `jax.random` key; only random compressors need one.

    Returns:
      The decoded array, with the shape and dtype of `x`.

    Raises:
      ValueError: a random compressor without a key; `x` is not real and floating.

    Example:
      >>> import jax.numpy as jnp
      >>> from relaxjax import compression
      >>> x = jnp.array([1.0, -3.0])
      >>> print(compression.roundtrip(compression.sign(), x))
      [ 2. -2.]
    """
    x = jnp.asarray(x)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise ValueError(
            f"roundtrip: x is {x.dtype}, and compressors take real floating arrays: "
            "cast it first"
        )
    noise = _noise(compressor, key)
    feedback = compressor.feedback
    flat = x.ravel().astype(jnp.float32)
    state = feedback.init(flat)
    p = feedback.before(flat, state)
    c = compressor.decompress(compressor.compress(p, noise), p.size, noise)
    out, _ = feedback.after(flat, c, c, state)
    return out.reshape(x.shape).astype(x.dtype)


def payload_bytes(compressor: Compressor, x: jax.Array | jax.ShapeDtypeStruct) -> int:
    """Bytes of one payload of an array like `x`.

    Args:
      compressor: any compressor.
      x: an array or `jax.ShapeDtypeStruct`; only its size matters.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from relaxjax import compression
      >>> x = jax.ShapeDtypeStruct((1000,), jnp.float32)
      >>> compression.payload_bytes(compression.sign(), x)  # 1000 bits and a scale
      129
    """
    flat = jax.ShapeDtypeStruct((x.size,), jnp.float32)
    noise = _noise(compressor, 0) if compressor.random else None
    payload = jax.eval_shape(compressor.compress, flat, noise)
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(payload))


def _noise(compressor: Compressor, key: int | jax.Array | None) -> Keys | None:
    if not compressor.random:
        return None
    if key is None:
        raise ValueError(
            f"roundtrip: {compressor.name} is random and key=None; pass key=, a seed "
            "or a jax.random key"
        )
    words = key_words(key)
    return Keys(shared=words, own=fold(words, 1))

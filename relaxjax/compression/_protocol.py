"""What a compressor is: data and pure functions on one flat array.

    payload = C.compress(x)         x^ = C.decompress(payload)

What is known of x^ is declared (E over the compressor's own randomness, d the number of
elements), and the tests check the declaration:

    U(omega)  unbiased:     E x^ = x,  E |x^ - x|^2 <= omega(d) |x|^2
    B(delta)  contraction:  E |x^ - x|^2 <= (1 - delta(d)) |x|^2
    L         linear:       payloads may be added without being decoded

Plain SGD wants U, error feedback wants B (facts: Richtarik et al. 2021). An unbiased
compressor is made a contraction by division: C in U(omega) gives C / (1 + omega) in
B(1 / (1 + omega)).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from relaxjax._core._random import Keys, fold, key_words

Payload = Any  # a pytree of arrays whose shapes depend on the size of x alone


class Law(NamedTuple):
    """What is declared of a compressor, for arrays of d elements.

    Attributes:
      omega: U(omega(d)), or None if it is biased.
      delta: B(delta(d)) with 0 <= delta <= 1 (0: it never enlarges the error), or None
        if it is no contraction.
      linear: whether payloads may be summed.
    """

    omega: Callable[[int], float] | None = None
    delta: Callable[[int], float] | None = None
    linear: bool = False


class Feedback(NamedTuple):
    """How what was lost comes back; on one leaf by itself (`relaxjax.compression`).

    Attributes:
      name: for tables.
      init: `init(x) -> state`, arrays like x (float32 or wider, or codes), and scalars.
      before: `before(g, state) -> p`, what is compressed.
      after: `after(g, c, mean, state) -> (out, state)`, with c what of p was delivered
        and `mean` that of all workers.
    """

    name: str
    init: Callable[[Any], Any]
    before: Callable[[jax.Array, Any], jax.Array]
    after: Callable[[jax.Array, jax.Array, jax.Array, Any], tuple[jax.Array, Any]]


NO_FEEDBACK = Feedback(
    name="none",
    init=lambda x: (),
    before=lambda g, state: g,
    after=lambda g, c, mean, state: (mean, state),
)


class Compressor(NamedTuple):
    """A compressor of flat float32 arrays.

    Attributes:
      name: as in tables.
      compress: `compress(x, noise) -> payload`, x float32[d].
      decompress: `decompress(payload, d, noise) -> float32[d]`, with the same
        `noise.shared`; it must not look at `noise.own`, which is the sender's.
      law: what is declared of it.
      random: whether it needs noise (deterministic ones get None).
      algorithm: which exchange suits it: `"two_shot"` (dense codes), `"one_shot"`
        (sparse payloads, not worth compressing twice) or `"psum"` (linear).
      feedback: what wraps it.
    """

    name: str
    compress: Callable[[jax.Array, Keys | None], Payload]
    decompress: Callable[[Payload, int, Keys | None], jax.Array]
    law: Law
    random: bool = False
    algorithm: str = "two_shot"
    feedback: Feedback = NO_FEEDBACK


def roundtrip(
    compressor: Compressor, x: jax.Array, key: int | jax.Array | None = None
) -> jax.Array:
    """What the receiver would see of `x`, in a first step.

    Args:
      compressor: any, with feedback or without.
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
    _require_real(x, "roundtrip")
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
      compressor: any.
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


def contractive(compressor: Compressor) -> Compressor:
    """A compressor in B, as error feedback needs it: U(omega) is divided by 1 + omega.

    Raises:
      ValueError: neither unbiased nor a contraction.
    """
    omega = compressor.law.omega
    if compressor.law.delta is not None:
        return compressor
    if omega is None:
        raise ValueError(
            f"error feedback around {compressor.name}: it is neither a contraction nor "
            "unbiased, so what it loses may grow without bound; use another compressor"
        )
    plain = compressor.decompress

    def decompress(payload, size, noise):
        return plain(payload, size, noise) * jnp.float32(1 / (1 + omega(size)))

    law = Law(delta=lambda d: 1 / (1 + omega(d)), linear=compressor.law.linear)
    return compressor._replace(decompress=decompress, law=law)


def with_feedback(compressor: Compressor, feedback: Feedback) -> Compressor:
    """`compressor`, a contraction, with what it loses fed back.

    Raises:
      ValueError: it has feedback already, or is no contraction.
    """
    if compressor.feedback is not NO_FEEDBACK:
        raise ValueError(
            f"{feedback.name} around {compressor.name}, which already has "
            f"{compressor.feedback.name}: what is lost can come back once only; wrap "
            "the bare compressor"
        )
    return contractive(compressor)._replace(feedback=feedback)


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


def _require_real(x: jax.Array, caller: str) -> None:
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise ValueError(
            f"{caller}: x is {x.dtype}, and compressors take real floating arrays: "
            "cast it first"
        )

"""What a compressor is: data and pure functions on one flat array.

    payload = C.compress(x)         x^ = C.decompress(payload)

What is known of x^ is declared (E over the compressor's own randomness, d the number of
elements), and the tests check the declaration:

    U(omega)  unbiased:     E x^ = x,  E |x^ - x|^2 <= omega(d) |x|^2
    B(delta)  contraction:  E |x^ - x|^2 <= (1 - delta(d)) |x|^2
    L         linear:       payloads may be added without being decoded

x is float32: what is declared holds for the largest finite values, and values below
2^-126, which processors take for zero, count as zero. NaN and infinity stay visible in
x^ where they were, or in their whole block.

Plain SGD wants U, error feedback wants B (facts: Richtarik et al. 2021). An unbiased
compressor is made a contraction by division: C in U(omega) gives C / (1 + omega) in
B(1 / (1 + omega)).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from relaxjax._core._checks import check_type
from relaxjax._core._random import Keys
from relaxjax._core._tree import wide

Payload = Any  # a pytree of arrays whose shapes depend on the size of x alone


@dataclass(frozen=True)
class Law:
    """What is declared of a compressor, for arrays of d elements.

    Attributes:
      omega: U(omega(d)), or None if it is biased.
      delta: B(delta(d)) with 0 <= delta <= 1 (0: it never enlarges the error), or None
        if it is not a contraction.
      linear: whether payloads may be summed.

    Raises:
      TypeError: omega or delta is a number.
    """

    omega: Callable[[int], float] | None = None
    delta: Callable[[int], float] | None = None
    linear: bool = False

    def __post_init__(self) -> None:
        """Refuses numbers, which would be called when feedback is built."""
        for name in ("omega", "delta"):
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise TypeError(
                    f"Law: {name}={value!r} must be a function of the number of "
                    f"elements, or None: Law({name}=lambda d: {value!r})"
                )


class Feedback(NamedTuple):
    """A rule of feedback for one leaf: how what was lost comes back.

    Attributes:
      name: its name in tables.
      init: `init(x) -> state`, arrays like x (float32 or wider, or codes), and scalars.
      before: `before(g, state) -> p`, what is compressed.
      after: `after(g, c, mean, state) -> (out, state)`, with c the part of p that was
        delivered and `mean` the mean of c over the workers.
      absent: `absent(c, mean, state) -> (out, state)`, for a worker that has no g in
        this step and sends nothing: what it is owed waits. c is 0, less what the
        messages of others have lost on their way through it. None: `after` of g = 0.
      momentum: whether it takes the place of an optimizer's momentum.
      remembers: whether `out` has what workers sent before they became absent.
    """

    name: str
    init: Callable[[Any], Any]
    before: Callable[[jax.Array, Any], jax.Array]
    after: Callable[[jax.Array, jax.Array, jax.Array, Any], tuple[jax.Array, Any]]
    absent: Callable[[jax.Array, jax.Array, Any], tuple[jax.Array, Any]] | None = None
    momentum: bool = False
    remembers: bool = False


NO_FEEDBACK = Feedback(
    name="none",
    init=lambda x: (),
    before=lambda g, state: g,
    after=lambda g, c, mean, state: (mean, state),
)


class Compressor(NamedTuple):
    """A compressor of flat float32 arrays.

    Attributes:
      name: its name in tables.
      compress: `compress(x, noise) -> payload`, x float32[d].
      decompress: `decompress(payload, d, noise) -> float32[d]`, with the same
        `noise.shared`; it must not look at `noise.own`, which is the sender's.
      law: what is declared of it.
      random: whether it needs noise (deterministic ones get None).
      algorithm: the exchange that suits it: `"two_shot"` (dense codes), `"one_shot"`
        (sparse payloads, not worth compressing twice) or `"psum"` (linear).
      feedback: the rule of feedback around it.
    """

    name: str
    compress: Callable[[jax.Array, Keys | None], Payload]
    decompress: Callable[[Payload, int, Keys | None], jax.Array]
    law: Law
    random: bool = False
    algorithm: str = "two_shot"
    feedback: Feedback = NO_FEEDBACK


def require_compressor(
    caller: str, name: str, value: Any, such_as: str = "quantize(8)"
) -> None:
    """Refuses anything but a `Compressor` or None."""
    if not isinstance(value, Compressor | None):
        raise TypeError(
            f"{caller}: {name}={value!r} is not a Compressor; make one with "
            f"relaxjax.compression, such as relaxjax.compression.{such_as}"
        )


def contractive(compressor: Compressor) -> Compressor:
    """A compressor in B, for error feedback: U(omega) is divided by 1 + omega."""
    omega = compressor.law.omega
    if compressor.law.delta is not None:
        return compressor
    if omega is None:
        raise ValueError(
            f"error feedback around {compressor.name}: it is neither a contraction nor "
            "unbiased, so what it loses may grow without bound; use another compressor"
        )

    def decompress(payload, size, noise):
        x = compressor.decompress(payload, size, noise)
        return x * jnp.float32(1 / (1 + omega(size)))

    law = Law(delta=lambda d: 1 / (1 + omega(d)), linear=compressor.law.linear)
    return compressor._replace(decompress=decompress, law=law)


def with_feedback(compressor: Compressor, feedback: Feedback) -> Compressor:
    """The compressor, made `contractive`, inside a rule of feedback."""
    check_type(f"{feedback.name}: compressor", compressor, Compressor, "try sign()")
    if compressor.feedback is not NO_FEEDBACK:
        raise ValueError(
            f"{feedback.name} around {compressor.name}, which already has "
            f"{compressor.feedback.name}: what is lost can come back once only; wrap "
            "the bare compressor"
        )
    return contractive(compressor)._replace(feedback=feedback)


def zeros_in(state: Any) -> Callable[[Any], Any]:
    """An `init` for a NamedTuple whose fields start as zeros like the leaf.

    They are float32 or wider: a narrow buffer would lose what it is there to keep.
    """
    fields = state._fields
    return lambda x: state(*(jnp.zeros_like(x, dtype=wide(x.dtype)) for _ in fields))

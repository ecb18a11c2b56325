"""The laws of a compressor: what it declares, on inputs that have broken others.

    U(omega)  E x^ = x, E |x^ - x|^2 <= omega |x|^2  over draws, within 5 deviations
    B(delta)  E |x^ - x|^2 <= (1 - delta) |x|^2
    L         C^-1(C(x) + C(y)) = x^ + y^

The mean is checked twice: its distance from x, and its length along x, in which the
errors of many elements cancel, so that a bias of the scale stands out.

Cost: one compilation for each size; 1000 draws of a random compressor, 10 of an input
of 100 000 elements.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from relaxjax.check import _codec_laws, _token_laws
from relaxjax.check._samples import (
    SIZES,
    decoded,
    drawer,
    draws_of,
    inputs,
    noise_of,
    squared,
)
from relaxjax.check._verdict import Verdict, refuted, spelled, verdict_of
from relaxjax.compression import Compressor

DRAWS = 1000
_DEVIATIONS = 5  # standard deviations of a mean that chance is allowed
_TINY = float(np.finfo(np.float32).tiny)  # float32 flushes what is smaller


class _Case(NamedTuple):
    """An input, and what came back.

    Attributes:
      input: its name.
      x: float32[d].
      out: float64[draws, d].
    """

    input: str
    x: np.ndarray
    out: np.ndarray

    @property
    def size(self) -> int:
        """Number of elements d."""
        return self.x.size

    @property
    def flushed(self) -> float:
        """The square of what float32 may lose of numbers too small for it."""
        return self.size * _TINY**2

    @property
    def in_range(self) -> bool:
        """Whether no draw is the largest float, which stands for what is beyond it."""
        return bool(np.abs(self.out).max(initial=0) < np.finfo(np.float32).max)

    @property
    def slack(self) -> float:
        """What chance and rounding may add to the mean squared error."""
        chance = _DEVIATIONS * self.errors.std() / np.sqrt(len(self.out))
        return chance + 2.0**-44 * squared(self.x) + self.flushed

    @property
    def errors(self) -> np.ndarray:
        """Squared error of each draw."""
        return squared(self.out - self.x)

    @property
    def where(self) -> dict[str, Any]:
        """What a counterexample says of this case."""
        where: dict[str, Any] = {"input": self.input, "size": self.size}
        where |= {"seed": 0, "draws": len(self.out)}
        return where | ({"x": spelled(self.x)} if self.size <= 8 else {})


def compressor_laws(
    compressor: Compressor, *, draws: int = DRAWS, sizes: Sequence[int] = SIZES
) -> tuple[Verdict, ...]:
    """Checks a compressor, without its feedback, against what it declares.

    Args:
      compressor: any compressor.
      draws: number of draws of a random compressor, for each small input.
      sizes: numbers of elements, the smallest first, so that counterexamples are small.

    Returns:
      A verdict for each law; a law that is not declared is only reported.

    Example:
      >>> from relaxjax import compression
      >>> from relaxjax.check import compressor_laws
      >>> for law in compressor_laws(compression.sign(), sizes=(7,))[:2]:
      ...     print(law.law, law.holds)
      finite, of the size of x True
      unbiased None
    """
    cases: list[_Case] = []

    def finite() -> Verdict:
        for size in sizes:
            draw = drawer(compressor, draws_of(size, draws))
            cases.extend(_Case(name, x, draw(x)) for name, x in inputs(size))
        return _finite(compressor, cases)

    first = verdict_of("finite, of the size of x", finite)
    if not first.holds:
        return (first,)
    laws: dict[str, Callable[[], Verdict]] = {
        "unbiased": lambda: _unbiased(compressor, cases),
        "contraction": lambda: _contraction(compressor, cases),
        "linear": lambda: _codec_laws.linear(compressor),
        "the same again": lambda: _codec_laws.deterministic(compressor),
        "decoded from the payload": lambda: _codec_laws.from_payload(compressor),
        "not finite stays visible": lambda: _codec_laws.visible(compressor),
        "empty arrays": lambda: _codec_laws.empty(compressor),
        "sign of zero": lambda: _codec_laws.sign_of_zero(compressor),
        _token_laws.LAW: lambda: _token_laws.tokens(compressor),
    }
    return (first, *(verdict_of(name, check) for name, check in laws.items()))


def _finite(compressor: Compressor, cases: Sequence[_Case]) -> Verdict:
    law = "finite, of the size of x"
    dtype = decoded(compressor, jnp.ones(8), noise_of(compressor, 0)).dtype
    if dtype != jnp.float32:
        where = {"input": "ones", "size": 8}
        return refuted(law, "another dtype", where, "float32", str(dtype))
    for case in cases:
        if case.out.shape[1:] != case.x.shape:
            seen = f"shape {case.out.shape[1:]}"
            return refuted(law, "another shape", case.where, f"{case.x.shape}", seen)
        if not np.isfinite(case.out).all():
            seen = case.out[~np.isfinite(case.out)][:1]
            return refuted(law, "not finite", case.where, "finite numbers", seen)
    return Verdict(law, True, f"{len(cases)} inputs")


def _unbiased(compressor: Compressor, cases: Sequence[_Case]) -> Verdict:
    """The mean and, where U(omega) is declared, the variance."""
    law, omega = "unbiased", compressor.law.omega
    cases = [case for case in cases if case.in_range]
    biased = next(filter(None, map(_bias, cases)), None)
    largest = f"no bias seen, omega {_largest_error(cases):.4g} or more"
    if omega is None:
        return Verdict(law, None, "biased" if biased else largest)
    law = f"unbiased, U(omega), omega({cases[-1].size}) = {omega(cases[-1].size):.4g}"
    if biased:
        return refuted(law, "biased", *biased)
    for case in cases:
        bound = omega(case.size) * squared(case.x)
        if case.errors.mean() > bound * (1 + 1e-5) + case.slack:
            expected, seen = f"E |x^ - x|^2 <= {bound:.6g}", case.errors.mean()
            return refuted(law, "more variance", case.where, expected, seen)
    return Verdict(law, True, largest)


def _bias(case: _Case) -> tuple[dict[str, Any], str, str] | None:
    """A case where the mean of the draws is farther from x than chance allows."""
    norm = np.sqrt(squared(case.x))
    count = len(case.out)
    # What is too rare to be drawn leaves no trace in the deviation.
    rare = 10 * norm / count if count > 1 else 0.0
    room = _DEVIATIONS * np.sqrt(case.errors.mean() / count) if count > 1 else 0.0
    room += rare + 2.0**-21 * norm + np.sqrt(case.flushed)
    mean = case.out.mean(axis=0)
    off = np.sqrt(squared(mean - case.x))
    if off > room:
        seen = f"{off:.4g} away, {spelled(mean)}"
        return case.where, f"a mean within {room:.4g} of x", seen
    if case.input != "gauss" or case.size < 64:
        return None
    along = case.out @ case.x / squared(case.x)
    width = _DEVIATIONS * along.std() / np.sqrt(count) + 1e-5
    if abs(along.mean() - 1) > width:
        expected = f"<x^, x> / |x|^2 = 1 within {width:.4g}"
        return case.where, expected, f"{along.mean():.6g}"
    return None


def _largest_error(cases: Sequence[_Case]) -> float:
    """The largest E |x^ - x|^2 / |x|^2 of the inputs that float32 resolves."""
    resolved = [case for case in cases if squared(case.x) > 1e-60]
    return max(float(case.errors.mean() / squared(case.x)) for case in resolved)


def _contraction(compressor: Compressor, cases: Sequence[_Case]) -> Verdict:
    law, delta = "contraction", compressor.law.delta
    most = _largest_error(cases)
    found = (
        f"delta {1 - most:.4g} or less"
        if most <= 1
        else "not a contraction: errors grow"
    )
    if delta is None:
        return Verdict(law, None, found)
    size = cases[-1].size
    law = f"contraction, B(delta), delta({size}) = {delta(size):.4g}"
    for case in cases:
        bound = (1 - delta(case.size)) * squared(case.x)
        if case.errors.mean() > bound * (1 + 1e-5) + case.slack:
            expected = f"E |x^ - x|^2 <= {bound:.6g}"
            seen = f"{case.errors.mean():.6g}, {spelled(case.out[0])}"
            return refuted(law, "a larger error", case.where, expected, seen)
    return Verdict(law, True, found)

"""The laws of a compressor: what it declares, on inputs that have broken some.

    U(omega)  E x^ = x, E |x^ - x|^2 <= omega |x|^2  over draws, within 5 deviations
    B(delta)  E |x^ - x|^2 <= (1 - delta) |x|^2
    L         C^-1(C(x) + C(y)) = x^ + y^

Of the mean, two things are held: its distance from x, and its length along x, in which
the errors of many elements cancel, so that a bias of the scale stands out.

Cost: one compilation for each size; 1000 draws of a random compressor.
"""

from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np

from relaxjax.check import _codec_laws as _codes
from relaxjax.check._cases import DEVIATIONS, Case
from relaxjax.check._inputs import SIZES, inputs
from relaxjax.check._samples import decoded, drawer, noise_of, squared
from relaxjax.check._verdict import (
    Counterexample,
    Verdict,
    refuted,
    spelled,
    verdict_of,
)
from relaxjax.compression import Compressor

DRAWS = 1000


def compressor_laws(
    compressor: Compressor, *, draws: int = DRAWS, sizes: Sequence[int] = SIZES
) -> tuple[Verdict, ...]:
    """Holds a compressor, without its feedback, to what it declares.

    Args:
      compressor: any.
      draws: of a random compressor, for each input.
      sizes: numbers of elements, the smallest first: so are counterexamples.

    Returns:
      A verdict for each law; those on what is not declared only report.

    Example:
      >>> from relaxjax import compression
      >>> from relaxjax.check import compressor_laws
      >>> for law in compressor_laws(compression.sign(), sizes=(7,))[:2]:
      ...     print(law.law, law.holds)
      finite, of the size of x True
      unbiased None
    """
    cases: list[Case] = []

    def drawn() -> Verdict:
        draw = drawer(compressor, draws)
        for size in sizes:
            cases.extend(Case(name, x, draw(x)) for name, x in inputs(size))
        return _finite(compressor, cases)

    first = verdict_of("finite, of the size of x", drawn)
    if not first.holds:
        return (first,)
    laws: dict[str, Callable[[], Verdict]] = {
        "unbiased": lambda: _unbiased(compressor, cases),
        "contraction": lambda: _contraction(compressor, cases),
        "linear": lambda: _codes.linear(compressor),
        "the same again": lambda: _codes.deterministic(compressor),
        "decoded from the payload": lambda: _codes.from_payload(compressor),
        "not finite stays visible": lambda: _codes.visible(compressor),
        "empty arrays": lambda: _codes.empty(compressor),
        "sign of zero": lambda: _codes.sign_of_zero(compressor),
    }
    return (first, *(verdict_of(name, check) for name, check in laws.items()))


def _finite(compressor: Compressor, cases: Sequence[Case]) -> Verdict:
    law = "finite, of the size of x"
    dtype = decoded(compressor, jnp.ones(8), noise_of(compressor, 0)).dtype
    if dtype != jnp.float32:
        case = Counterexample({"input": "ones", "size": 8}, "float32", str(dtype))
        return refuted(law, "another dtype", case)
    for case in cases:
        if case.out.shape[1:] != case.x.shape:
            shape = f"shape {case.out.shape[1:]}"
            return refuted(law, "another shape", case.against(f"{case.x.shape}", shape))
        if not np.isfinite(case.out).all():
            bad = case.out[~np.isfinite(case.out)]
            seen = spelled(bad[:1])
            return refuted(law, "not finite", case.against("finite numbers", seen))
    return Verdict(law, True, f"{len(cases)} inputs")


def _unbiased(compressor: Compressor, cases: Sequence[Case]) -> Verdict:
    """The mean and, where U(omega) is declared, the variance."""
    law, omega = "unbiased", compressor.law.omega
    biased = next(filter(None, map(_bias, cases)), None)
    most = max(_relative(cases))
    if omega is None:
        found = "biased" if biased else f"no bias seen, omega {most:.4g} or more"
        return Verdict(law, None, found)
    law = f"unbiased, U(omega), omega({cases[-1].size}) = {omega(cases[-1].size):.4g}"
    if biased:
        return refuted(law, "biased", biased)
    for case in cases:
        bound = omega(case.size) * squared(case.x)
        if case.errors.mean() > bound * (1 + 1e-5) + case.slack:
            expected = f"E |x^ - x|^2 <= {bound:.6g}"
            seen = f"{case.errors.mean():.6g}"
            return refuted(law, "more variance", case.against(expected, seen))
    return Verdict(law, True, f"no bias seen, omega {most:.4g} or more")


def _bias(case: Case) -> Counterexample | None:
    """Where the mean of the draws is farther from x than chance allows."""
    norm = np.sqrt(squared(case.x))
    count = len(case.out)
    # What is too rare to be drawn leaves no trace in the deviation.
    rare = 10 * norm / count if count > 1 else 0.0
    room = DEVIATIONS * np.sqrt(case.errors.mean() / count) if count > 1 else 0.0
    room += rare + 2.0**-21 * norm + np.sqrt(case.flushed)
    mean = case.out.mean(axis=0)
    off = np.sqrt(squared(mean - case.x))
    if off > room:
        return case.against(
            f"a mean within {room:.4g} of x", f"{off:.4g} away, {spelled(mean)}"
        )
    if case.input != "gauss" or case.size < 64:
        return None
    along = case.out @ case.x / squared(case.x)
    width = DEVIATIONS * along.std() / np.sqrt(count) + 1e-5
    if abs(along.mean() - 1) > width:
        return case.against(
            f"<x^, x> / |x|^2 = 1 within {width:.4g}", f"{along.mean():.6g}"
        )
    return None


def _relative(cases: Sequence[Case]) -> list[float]:
    """E |x^ - x|^2 / |x|^2 of all inputs that float32 resolves."""
    found = [c.errors.mean() / squared(c.x) for c in cases if squared(c.x) > 1e-60]
    return [float(x) for x in found]


def _contraction(compressor: Compressor, cases: Sequence[Case]) -> Verdict:
    law, delta = "contraction", compressor.law.delta
    most = max(_relative(cases))
    found = f"delta {1 - most:.4g} or less" if most <= 1 else "none: errors grow"
    if delta is None:
        return Verdict(law, None, found)
    law = (
        f"contraction, B(delta), delta({cases[-1].size}) = {delta(cases[-1].size):.4g}"
    )
    for case in cases:
        bound = (1 - delta(case.size)) * squared(case.x)
        if case.errors.mean() > bound * (1 + 1e-5) + case.slack:
            expected = f"E |x^ - x|^2 <= {bound:.6g}"
            seen = f"{case.errors.mean():.6g}, {spelled(case.out[0])}"
            return refuted(law, "a larger error", case.against(expected, seen))
    return Verdict(law, True, found)

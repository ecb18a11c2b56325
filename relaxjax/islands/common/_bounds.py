"""How far a contribution may go, and how much it may weigh, relative to the others.

With l = |a - x| for the length of a contribution's move, c for its tokens, s for its
steps, and R(y) for the reference of a number y:

    left out    l > limit R(l)
    w           min(c^2 / s, cap^2 R(c^2 / s))
    R(y)        the larger of two medians: over the contributions that are present, and
                over the newest ones of each member (`common._history`)

A median counts from three values on. Where fewer members are known, the second is that
of the last four merges. Where neither has three, R(l) is the smallest of the lengths
that are present, and no weight is bounded: of two, nobody can say whose tokens are
right. If R(l) is 0, because the others stand still, a move may be max(|a|, sqrt n) long
for the n elements of the fragment: more than that is no first step.

Lines without a rule are of an older relaxjax, whose second median was always that of
the last four merges, and whose reference of 0 bounded nothing. They replay like that.

Law: w l <= cap^2 limit R(c^2 / s) R(l) for each contribution that is merged. All of it
follows from numbers in the log, so that whoever reads it comes to the same decision.

Sources: norms relative to the median, as in Templar (one-covenant/templar); a cap of
reported weights, as HPE Swarm Learning has. Neither finds out who is wrong.

Cost: one pass over each contribution in float64, for its length; one over the fragment
where R(l) is 0.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from relaxjax.islands.common._files import Arrays

MERGES = 4
"""How many merges of a fragment the references look back."""
RULE = 2
"""How references are found today; lines of rule 1 do not name it."""
_ENOUGH = 3  # values that have a median
_CHUNK = 1 << 20  # elements that are widened at a time
_MOST = 1e290  # sums of squares of float64 that are larger count as this


class Part(NamedTuple):
    """What an island contributes: its model, and since when it has had it."""

    model: Arrays
    tokens: float
    steps: int


class Measure(NamedTuple):
    """What bounds look at in a contribution.

    Attributes:
      length: |a - x| of its fragment.
      weight: tokens^2 / steps; in a line of the log, what was merged with.
    """

    length: float
    weight: float


class Before(NamedTuple):
    """What a fragment's last merges had.

    Attributes:
      measures: all that was merged in the last four, newest first.
      members: by name, the newest of each member, and the version that has it.
    """

    measures: list[Measure]
    members: dict[str, tuple[int, Measure]]


class Bounds(NamedTuple):
    """The references of one merge, and the knobs.

    Attributes:
      limit: most times the reference that a length may be; None for any.
      cap: the root of how many times the reference a weight may be; None for any.
      length: R(l).
      weight: R(c^2 / s).
      rule: 1 or 2, see above.
      still: whether R(l) is 0, and `length` times the limit max(|a|, sqrt n).
      members: what was known of each member.
    """

    limit: float | None
    cap: float | None
    length: float
    weight: float
    rule: int = 1
    still: bool = False
    members: dict[str, tuple[int, Measure]] | None = None

    def record(self) -> dict[str, Any]:
        """What the log says of it."""
        said = self._asdict()
        if self.rule == 1:
            return {key: said[key] for key in ("limit", "cap", "length", "weight")}
        members = (self.members or {}).items()
        return {**said, "members": {k: [v, *one] for k, (v, one) in members}}

    def too_long(self, length: float) -> str | None:
        """Why a contribution is out of bounds, or None."""
        if self.limit is None or length <= self.limit * (self.length or math.inf):
            return None
        if self.still:
            return (
                f"its move is {length:.3g} long where the others stand still, and the "
                f"limit there is {self.limit * self.length:.3g}"
            )
        return (
            f"its move is {length:.3g} long, {length / self.length:.3g} times the "
            f"median, and the limit is {self.limit:g} times"
        )

    def counted(self, tokens: float, steps: int) -> float:
        """The tokens that count: those whose weight is within the cap."""
        if self.cap is None or not self.weight:
            return tokens
        most = self.cap**2 * self.weight
        return tokens if weight_of(tokens, steps) <= most else math.sqrt(most * steps)


def bounds_of(
    limit: float | None,
    cap: float | None,
    present: Sequence[Measure],
    before: Before,
    scale: Callable[[], float],
    rule: int = RULE,
) -> Bounds:
    """The bounds of a merge.

    Args:
      limit: see `Bounds`.
      cap: see `Bounds`.
      present: the contributions that are finite.
      before: those of the fragment's last merges.
      scale: max(|a|, sqrt n) of the fragment.
      rule: that of the line, if there is one.

    Example:
      >>> from relaxjax.islands.common._bounds import Before, Measure, bounds_of
      >>> three = [Measure(length, 512.0) for length in (1.0, 1.5, 4e20)]
      >>> bounds = bounds_of(10.0, 2.0, three, Before([], {}), lambda: 1.0)
      >>> bounds.too_long(4e20)
      'its move is 4e+20 long, 2.67e+20 times the median, and the limit is 10 times'
      >>> bounds.counted(64, 8), bounds.counted(64e6, 8)
      (64, 128.0)
    """
    if rule == 1:
        return Bounds(limit, cap, *_references(present, before.measures))
    last = [measure for _, measure in before.members.values()]
    last = last if len(last) >= _ENOUGH else before.measures
    length, weight = _references(present, last)
    still = length == 0 and len(present) > 0
    if still and limit is not None:
        length = scale() / limit
    return Bounds(limit, cap, length, weight, rule, still, before.members)


def _references(*groups: Sequence[Measure]) -> Measure:
    """R(l) and R(c^2 / s): of what is present, and of what was before."""
    enough = [group for group in groups if len(group) >= _ENOUGH]
    if not enough:
        return Measure(min((m.length for m in groups[0]), default=0.0), 0.0)
    lengths = (median(m.length for m in group) for group in enough)
    weights = (median(m.weight for m in group) for group in enough)
    return Measure(max(lengths), max(weights))


def scale_of(anchor: Arrays) -> float:
    """max(|a|, sqrt n) of a fragment, in six digits."""
    far = length_of(anchor, {name: np.zeros_like(a) for name, a in anchor.items()})
    return max(far, float(f"{math.sqrt(sum(a.size for a in anchor.values())):.6g}"))


def weight_of(tokens: float, steps: int) -> float:
    """Tokens^2 / steps."""
    return tokens * (tokens / steps)


def is_finite(x: np.ndarray, dtype: str) -> bool:
    """Whether all of it is finite in another dtype."""
    with np.errstate(over="ignore"):
        return bool(np.isfinite(x.astype(jnp.dtype(dtype))).all())


def length_of(anchor: Arrays, model: Arrays) -> float:
    """|a - x| in six digits; infinite where something is not finite."""
    parts = (_squares(a.ravel(), model[name].ravel()) for name, a in anchor.items())
    whole = math.fsum(square for leaf in parts for square in leaf)
    return float(f"{math.sqrt(whole):.6g}")


def _squares(a: np.ndarray, x: np.ndarray) -> Iterator[float]:
    """Sums of squares of parts of a leaf."""
    for start in range(0, a.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        with np.errstate(all="ignore"):
            far = a[part].astype(np.float64) - x[part].astype(np.float64)
            square = float(np.square(far).sum())
        yield min(square, _MOST) if np.isfinite(far).all() else math.inf

"""What the seconds of real steps say of the link, and of predictions that are wrong.

    T(r, f, c) + e_r = t

with t the seconds of a step that sends, f by how many times the link is as fast as it
was said to be, and e_r what the prediction of relaxation r is short of. One reading
tells one of the two:

    what ran first        e = 0
    r was come to         f as before;  e_r = t - T    if T / 3 <= t <= 3 T
    f was seen before,    that f;       e_r = t - T    likewise
    but not with r
    else                  e_r as it was found;  f by bisection

e holds for links within a factor of two of the f at which it was found, and is kept for
each such f. Where none is known, the prediction is taken to be right.

Law: while t is within the gain of what is predicted, nothing changes.

Cost: a few hundred predictions where the link has changed, else one.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

from relaxjax.plan.running._costs import FASTEST, Costs, factor

_NEAR = math.log(2)
_WRONG = 3.0  # times the seconds that were said, at most; beyond, it is the link


class Memory(NamedTuple):
    """f-, f and f+; c; what ran last; by relaxation, pairs (f, e)."""

    links: tuple[float, float, float]
    compute: float
    level: int | None = None
    errors: Mapping[int, tuple[tuple[float, float], ...]] = {}

    def error(self, level: int) -> float | None:
        """e of a relaxation over the link as it is; None: not found yet."""
        near = [(abs(math.log(f / self.links[1])), e) for f, e in self._of(level)]
        apart, e = min(near, default=(math.inf, 0.0))
        return e if apart <= _NEAR else None

    def link(self) -> tuple[float, float]:
        """f and c."""
        return self.links[1], self.compute

    def found(self, level: int, e: float) -> "Memory":
        """With e at f, instead of what was found near it."""
        f = self.links[1]
        kept = [p for p in self._of(level) if abs(math.log(p[0] / f)) > _NEAR]
        return self._replace(errors={**self.errors, level: (*kept, (f, e))})

    def others(self, level: int) -> list[float]:
        """Links that were seen before, over which this relaxation has not run."""
        own = [f for f, _ in self._of(level)]
        seen = (f for pairs in self.errors.values() for f, _ in pairs)
        return [f for f in seen if all(abs(math.log(f / x)) > _NEAR for x in own)]

    def _of(self, level: int) -> tuple[tuple[float, float], ...]:
        return self.errors.get(level, ())


def looked(
    memory: Memory, costs: Costs, level: int, seconds: float, gain: float
) -> Memory:
    """What explains the seconds: the link as it was, another error, or another link."""
    came, memory = level != memory.level, memory._replace(level=level)
    known, said = memory.error(level), costs.exchange(level, *memory.link())
    if came and known is None and memory.errors:
        if said / _WRONG <= seconds <= said * _WRONG:
            return memory.found(level, seconds - said)
    elif abs(seconds - said - (known or 0.0)) <= gain * (said + (known or 0.0)):
        return memory if known is not None else memory.found(level, 0.0)
    return _linked(memory, costs, level, seconds, gain)


def _linked(
    memory: Memory, costs: Costs, level: int, seconds: float, gain: float
) -> Memory:
    """Links that explain the seconds, by an error that was found at one of them.

    Next comes a link that was seen with other relaxations. Failing both, the prediction
    is taken to be right.
    """

    def of(f: float) -> float:
        return costs.exchange(level, f, memory.compute)

    def links(e: float) -> tuple[float, float, float]:
        t = max(seconds, of(FASTEST) + e)
        slow, now, fast = (factor(of, t * x - e) for x in (1 + gain, 1, 1 - gain))
        return slow, now, fast

    for f, e in memory.errors.get(level, ()):
        near = memory._replace(links=links(e))
        if abs(math.log(near.links[1] / f)) <= _NEAR:
            return near
    back = [(abs(math.log(seconds / of(f))), f) for f in memory.others(level)]
    apart, f = min(back, default=(math.inf, 1.0))
    if apart <= math.log(_WRONG):
        return memory._replace(links=(f, f, f)).found(level, seconds - of(f))
    return memory._replace(links=links(0.0)).found(level, 0.0)

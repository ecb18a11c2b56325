"""What a merge has, and what is left out of it: one decision, and its record.

    1   a contribution that is not finite is left out
    2   one that is beyond the bounds of the others too      common._bounds
    3   tokens count up to the cap; the rest is merged       common._merge
    4   a fragment or an outer state that is not finite, in the params' dtypes (65504 is
        the most that float16 has), is not committed: the longest contribution is left
        out as well, and 3 is done again

If none remains, the fragment stays as it was, momentum included, and the version is
committed all the same: members that were left out go on from it like any other.

The line of the log has each contribution's length, those that were left out and why,
and the bounds. The decision follows from these and the lines before, so that a replay
comes to the same one. Lines without bounds, as older versions of relaxjax wrote them,
are merges of all that they name.

Cost: one more merge for each contribution that 4 leaves out.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp

from relaxjax.islands.common._agreed import Agreed
from relaxjax.islands.common._bounds import (
    RULE,
    Before,
    Bounds,
    Measure,
    bounds_of,
    is_finite,
    scale_of,
    weight_of,
)
from relaxjax.islands.common._channel import Fragment
from relaxjax.islands.common._files import Arrays
from relaxjax.islands.common._merge import Merged, merge
from relaxjax.islands.common._offers import Checked, LeftOut, not_finite


class Decided(NamedTuple):
    """A merge.

    Attributes:
      merged: the fragment.
      kept: the contributions that it has, in order.
      left_out: those that it does not have, in order.
      bounds: what they were held against.
    """

    merged: Merged
    kept: list[Checked]
    left_out: list[LeftOut]
    bounds: Bounds

    def record(self) -> dict[str, Any]:
        """What the log says of contributions and bounds."""
        weighed = zip(self.kept, self.merged.weights, strict=True)
        return {
            "contributions": [checked.record(weight) for checked, weight in weighed],
            "left_out": [one.record() for one in self.left_out],
            "bounds": self.bounds.record(),
        }


def decide(
    run: Agreed,
    fragment: Fragment,
    outer: Arrays,
    ready: Sequence[Checked],
    before: Before,
    rule: int = RULE,
) -> Decided:
    """Merges what is within bounds.

    Args:
      run: the run.
      fragment: the fragment as it is.
      outer: the outer optimizer's state.
      ready: contributions to it, in order.
      before: what its last merges had.
      rule: that of the line which is replayed.
    """
    limit, cap = run.settings.limit, run.settings.cap
    left: dict[str, LeftOut] = {}
    finite = [c for c in ready if math.isfinite(c.length)]
    for checked in ready:
        if not math.isfinite(checked.length):
            left[checked.file] = LeftOut(checked, "finite", not_finite(checked))
    measures = [_measure(c) for c in finite]
    scale = functools.partial(scale_of, fragment.anchor)
    bounds = bounds_of(limit, cap, measures, before, scale, rule)
    for checked in finite:
        if why := bounds.too_long(checked.length):
            left[checked.file] = LeftOut(checked, "length", why)
    while True:
        kept = [c for c in ready if c.file not in left]
        merged = _merged(run, fragment, outer, kept, bounds)
        broken = _broken(run, fragment, merged)
        if broken is None or not kept:
            break
        longest = max(kept, key=lambda c: c.length)
        why = f"merged with it, {broken} is not finite"
        left[longest.file] = LeftOut(longest, "merged", why)
    return Decided(merged, kept, [left[f] for f in sorted(left)], bounds)


def _measure(checked: Checked) -> Measure:
    offer = checked.offer
    return Measure(checked.length, weight_of(offer.tokens, offer.steps))


def _merged(
    run: Agreed, fragment: Fragment, outer: Arrays, kept: list[Checked], bounds: Bounds
) -> Merged:
    """All that is kept, merged; without any, the fragment as it is."""
    if not kept:
        return Merged(fragment.anchor, outer, [])
    parts = [
        c.part()._replace(tokens=bounds.counted(c.offer.tokens, c.offer.steps))
        for c in kept
    ]
    return merge(run.settings, fragment.anchor, outer, parts)


def _broken(run: Agreed, fragment: Fragment, merged: Merged) -> str | None:
    """A leaf that is not finite in its param's dtype, or the outer state; or None."""
    for leaf in run.leaves:
        if leaf.fragment == fragment.number and not is_finite(
            merged.anchor[leaf.name], leaf.dtype
        ):
            return f"{leaf.name} in {leaf.dtype}"
    for x in merged.outer.values():
        if jnp.issubdtype(x.dtype, jnp.floating) and not is_finite(x, str(x.dtype)):
            return "the outer optimizer's state"
    return None

"""Times as exact integers, so that a tie is a tie.

TIC and TAC decide by comparing sums of times. In floating point `0.1 + 0.2` and
`0.3` differ, so that a sum taken in another order, or a change of unit, could turn
a tie into a preference. Here times become integers in their exact proportions, on
which Python adds without rounding.

Cost: O(n) for n times.
"""

import math
from collections.abc import Sequence
from fractions import Fraction

_DENOMINATOR = 1000
_ROUNDING = 1e-12


def ticks(times: Sequence[float]) -> list[int]:
    """Integers in the proportions of `times`.

    Times that are small rational multiples of the smallest one (as 2, 3 and 5 in any
    unit) are read as such; any others are taken as the exact binary fractions which
    floats are.

    Args:
        times: non-negative finite seconds.

    Returns:
        One integer for each time.

    Example:
        >>> ticks([0.1, 0.2, 0.3])
        [1, 2, 3]
        >>> ticks([1.5e-6, 0.0, 1e-6])
        [3, 0, 2]
    """
    unit = min((t for t in times if t > 0), default=1.0)
    near = {t: Fraction(t / unit).limit_denominator(_DENOMINATOR) for t in set(times)}
    commensurable = all(
        abs(float(ratio) * unit - t) <= _ROUNDING * t for t, ratio in near.items()
    )
    if not commensurable:
        near = {t: Fraction(t) for t in near}
    scale = math.lcm(*(ratio.denominator for ratio in near.values()))
    return [int(near[t] * scale) for t in times]

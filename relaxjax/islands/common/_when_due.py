"""When islands contribute: every so many steps, or by a table of periods.

    t_0 = 0        t_v = t_{v-1} + H(t_{v-1}) / P

t_v is the step of the run at which merge v is contributed to, P the number of
fragments, and H the period, with rows (s_k, H_k): H_k from step s_k on, as in
`relaxjax.periods.table`. Islands agree on a table as on a number, so it is data.

Cost: O(rows).
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from relaxjax._core._checks import require_whole
from relaxjax._core.foreign._ranges import STEPS

Rows = tuple[tuple[int, int], ...]


def period_of(sync_every: Any) -> Any:
    """A period as settings hold it: a number, or rows.

    Raises:
      TypeError: a function, on which nobody can agree.
    """
    if isinstance(sync_every, Callable):
        raise TypeError(
            f"islands: sync_every={sync_every!r} is a function, and islands must agree "
            "on periods as data: give rows (step, period). Those of a schedule f are "
            "[(a, b - a) for a, b in itertools.pairwise([0, "
            "*relaxjax.periods.meetings(f, steps)])]"
        )
    if isinstance(sync_every, Sequence) and not isinstance(sync_every, str):
        return tuple(
            tuple(row) if isinstance(row, Sequence) else row for row in sync_every
        )
    return sync_every


def check_period(period: Any, fragments: int) -> None:
    """ValueError with what is wrong with a period that `period_of` gave."""
    rows = period if isinstance(period, tuple) else ((0, period),)
    if not all(isinstance(row, tuple) and len(row) == 2 for row in rows):
        raise ValueError(f"islands: sync_every={period} must be rows (step, period)")
    for step, each in rows:
        for name, number, least in (("a step of ", step, 0), ("", each, 1)):
            whole = STEPS._replace(least=least)
            require_whole("islands", f"{name}sync_every", number, least, whole.broken)
        if each % fragments:
            raise ValueError(
                f"islands: sync_every={each} must be a multiple of "
                f"fragments={fragments}, such as {fragments * (each // fragments + 1)}"
            )
    steps = [step for step, _ in rows]
    if not rows or steps != sorted(set(steps)) or steps[0]:
        raise ValueError(
            f"islands: the steps of sync_every={steps} must begin at 0 and rise"
        )


def step_of(period: int | Rows, fragments: int, version: int) -> int:
    """t_v, the step of the run at which a merge is contributed to."""
    rows = period if isinstance(period, tuple) else ((0, period),)
    at = 0
    for (_, each), (end, _) in itertools.pairwise(rows):
        each //= fragments
        count = min(version, max(0, -(-(end - at) // each)))
        at, version = at + count * each, version - count
    return at + version * (rows[-1][1] // fragments)

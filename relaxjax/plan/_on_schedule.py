"""Candidates whose models meet on a schedule, in a run of so many steps.

    H = steps / meetings

H is the mean period: seconds and bytes of a step are means over the run. A relaxation
without `sync_every` stays as it is; one whose workers arrive by turns, which takes no
schedule, is left out. Qualities are those of constant periods, so that of a schedule is
unmeasured.

Cost: the schedule is asked once for each meeting.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from relaxjax._core._checks import require_whole
from relaxjax._names import parse
from relaxjax.periods import Period, meetings
from relaxjax.plan._candidate import Candidate

_OPTION = "sync_every"


def mean_period(caller: str, period: Period, steps: int | None) -> float:
    """H of a schedule over so many steps; of a number, itself.

    Raises:
      ValueError: a schedule without `steps`, or without a meeting in them; a number, or
        `steps`, is below 1.
    """
    if not callable(period):
        require_whole(caller, _OPTION, period)
        return float(period)
    if steps is None:
        raise ValueError(
            f"{caller}: under a schedule no step costs what another does: say steps=, "
            "the length of the run, for their mean"
        )
    count = len(meetings(period, steps))
    if not count:
        raise ValueError(
            f"{caller}: {_OPTION} meets never in steps={steps}: nothing would be sent; "
            "give a schedule with shorter periods, or a longer run"
        )
    return steps / count


def on_schedule(
    period: Period, mean: float, found: Iterable[Candidate]
) -> Iterator[Candidate]:
    """Each as it is on this schedule; what differs in its period alone comes once."""
    seen = set()
    for c in found:
        row = parse(c.relaxation).row
        if _OPTION not in row.options or c.every != c.options.get(_OPTION, row.period):
            yield c
            continue
        if callable(period) and not row.sends.line:
            continue
        options = {k: v for k, v in c.options.items() if k != _OPTION}
        if (key := (c.relaxation, *options.items())) not in seen:
            seen.add(key)
            yield _at(period, mean, replace(c, options=options), row.period)


def _at(period: Period, mean: float, c: Candidate, usual: int | None) -> Candidate:
    """A candidate without its period, on this one."""
    text = _OPTION if callable(period) else str(period)
    own = {} if callable(period) or period == usual else {_OPTION: period}
    return replace(
        c,
        every=mean,
        options={**c.options, **own},
        schedule=period if callable(period) else None,
        tx=re.sub(rf"(?<=, )({_OPTION}=)?{c.every}\b", rf"\g<1>{text}", c.tx, count=1),
        why=c.why.replace(f" {c.every} ", f" {mean:.4g} "),
    )

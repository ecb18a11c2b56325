"""Who contributes to a merge of models, and who takes it over: rows of a table.

Row k is merge k, so that a log with a line for each merge is such a table. A worker may
be absent and adopt (it came too late), be present and adopt (as a rule), or neither.

Cost: nothing is sent.
"""

from typing import Any, NamedTuple

import jax

from relaxjax._core._axis import AxisName
from relaxjax.faults import FaultSchedule, fault_schedule


class Presence(NamedTuple):
    """Who contributes to each merge, and who takes it over."""

    caller: str
    axis_name: AxisName
    present: FaultSchedule
    adopts: FaultSchedule | None

    @property
    def period(self) -> int:
        """Number of merges after which both repeat."""
        return self.present.period

    def is_everyone(self) -> bool:
        """Whether all workers contribute to every merge, and take it over."""
        both = self.present, self.adopts or self.present
        return all(schedule.is_always(True) for schedule in both)

    def here(self, merge: jax.Array) -> tuple[jax.Array, jax.Array]:
        """bool[], bool[]: whether this worker is present, and whether it adopts."""
        here = self._read(self.present, "present", merge)
        if self.adopts is None:
            return here, here
        return here, self._read(self.adopts, "adopts", merge)

    def _read(self, schedule: FaultSchedule, name: str, merge: jax.Array) -> jax.Array:
        return schedule.here(self.caller, name, self.axis_name, merge % schedule.period)


def presence_of(
    caller: str, axis_name: AxisName, present: Any, adopts: Any, seed: int
) -> Presence:
    """Checks the tables or probabilities; ValueError if nobody ever contributes."""
    schedule = fault_schedule(caller, "present", present, (None,), seed)
    if schedule.is_always(False):
        raise ValueError(
            f"{caller}: present={present!r} says that nobody ever contributes, so "
            "that workers never hear of each other; take a probability above 0, or a "
            "table with a 1"
        )
    if adopts is None:
        return Presence(caller, axis_name, schedule, None)
    taking = fault_schedule(caller, "adopts", adopts, (None,), seed + 1)
    if len({schedule.period, taking.period}) > 1:
        raise ValueError(
            f"{caller}: adopts repeats after {taking.period} merges and present after "
            f"{schedule.period}: give two tables with as many rows"
        )
    return Presence(caller, axis_name, schedule, taking)

"""A controller: readings of a run go in, one decision for all workers comes out.

    memory, wanted = rule(memory, level, readings)

    level <- level      where a reading is not a number
    level <- level      where it changed less than `dwell` steps ago
    level <- wanted     else

It is a pure function on the host, asked between steps and seldom. Readings are means
over the workers, so that they are the same bits everywhere, and so is the decision
(`relaxjax.controllers._readings`). It compares floats once; from there on the level is
a whole number. Whoever asks changes the run at a boundary: after a meeting, or where a
phase begins. Seconds differ between processes, and the first one's are given to all.

Law: the same readings at the same steps give the same record.

Cost: a few operations on single numbers.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from relaxjax._core._checks import require_whole
from relaxjax._core._tree import leaf_names
from relaxjax.controllers._record import Decision, Level, Record

Rule = Callable[[Any, Level, Mapping[str, Any]], tuple[Any, Level]]
"""From memory, the level in force, and readings, to the next memory and level."""


class Controller(NamedTuple):
    """A pair of pure functions, and what they read.

    Attributes:
      init: () -> record, with the level of the start.
      update: (record, step, readings) -> record, with one decision more.
      reads: names of the readings that it needs; others are kept beside them.
    """

    init: Callable[[], Record]
    update: Callable[[Record, int, Mapping[str, Any]], Record]
    reads: tuple[str, ...]

    def replayed(self, decisions: Iterable[Decision]) -> Record:
        """The record of the same readings, to go on from when a run resumes.

        Args:
          decisions: those of `relaxjax.controllers.load`, from the start on.

        Raises:
          ValueError: this controller decides otherwise than was recorded.
        """
        record = self.init()
        for k, told in enumerate(decisions):
            if k:
                record = self.update(record, told.step, told.readings)
            own = record.decisions[-1]
            if (own.step, own.level) != (told.step, told.level):
                raise ValueError(
                    f"Controller.replayed: at step {told.step} this controller says "
                    f"{own.level}, and {told.level} was recorded: its numbers are "
                    "others; build it as in the run, or give its table alone to the run"
                )
        return record


def controller(
    rule: Rule,
    *,
    start: Level,
    reads: Sequence[str],
    memory: Any = None,
    dwell: int = 0,
    caller: str = "controller",
) -> Controller:
    """The controller of a rule, which holds its level where the rule may not speak.

    Args:
      rule: from (memory, level in force, readings) to (memory, level); pure. Readings
        are floats, lists of floats, and dictionaries of them.
      start: the level before the first reading.
      reads: names of the readings that the rule needs.
      memory: what it remembers before the first reading.
      dwell: steps between two changes at least; 0: it may change at each reading. A
        reading that would change the level earlier leaves `memory` as it was.
      caller: the name that errors begin with.

    Returns:
      A `Controller`. Its `update` raises ValueError where a step is not after the last
      one, or a reading is missing.

    Raises:
      ValueError: `dwell < 0`.

    Example:
      >>> from relaxjax import controllers
      >>> ranks = controllers.controller(
      ...     lambda memory, level, told: (memory, 1 if told["loss"] < 2 else 4),
      ...     start=4, reads=["loss"], dwell=100)
      >>> record = ranks.init()
      >>> for step, loss in [(50, 3.0), (100, 1.9), (150, 2.1), (200, float("nan"))]:
      ...     record = ranks.update(record, step, {"loss": loss})
      >>> record.table, [row.why for row in record.decisions]
      ([(0, 4), (100, 1)], ['start', 'rule', 'rule', 'dwell', 'loss is nan'])
    """
    require_whole(caller, "dwell", dwell, 0)

    def init() -> Record:
        return Record((Decision(0, start, "start", {}),), memory)

    def update(record: Record, step: int, readings: Mapping[str, Any]) -> Record:
        last = record.decisions[-1]
        require_whole(caller, "step", step, last.step + 1)
        told = _floats(caller, reads, readings)
        remembered, level, why = record.memory, last.level, _odd(told)
        if not why:
            remembered, wanted = rule(record.memory, last.level, told)
            held = wanted != level and record.since > 0 and step < record.since + dwell
            level, why = (level, "dwell") if held else (wanted, "rule")
            remembered = record.memory if held else remembered  # it is still to come
        since = record.since if level == last.level else step
        decisions = (*record.decisions, Decision(step, level, why, told))
        return Record(decisions, remembered, since)

    return Controller(init, update, tuple(reads))


def _floats(
    caller: str, reads: Sequence[str], readings: Mapping[str, Any]
) -> dict[str, Any]:
    """Readings as floats, lists and dictionaries."""
    if missing := [name for name in reads if name not in readings]:
        raise ValueError(
            f"{caller}: the reading {missing[0]!r} is missing; it reads "
            f"{', '.join(reads)}, means over the workers, as the metrics of "
            "relaxjax.data_parallel are"
        )
    return jax.tree.map(lambda x: np.asarray(x, np.float64).tolist(), dict(readings))


def _odd(told: Mapping[str, Any]) -> str:
    """Which reading is not a finite number; "" if all are."""
    named = zip(leaf_names(told), jax.tree.leaves(told), strict=True)
    return next((f"{name} is {x}" for name, x in named if not np.isfinite(x)), "")

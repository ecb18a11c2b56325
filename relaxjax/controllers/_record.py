"""Decisions of a controller as plain data: a table, kept as JSON, and given back.

    decisions    (step, level, why, readings), one for each time that it was asked
    table        (step, level) of those that changed the level, from step 0 on

A level holds from its step on: it is in force after so many steps. It is a whole number
(a rank, a period, the place of a plan), or one for each leaf, by name. The table is
what a schedule takes, and the readings are what the decisions follow from: so the one
repeats the run, and the other the controller.
"""

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax

from relaxjax._core.foreign._folders import local_path, write_whole
from relaxjax._core.foreign._json import LARGE, number, read_json
from relaxjax._core.foreign._types import wrong

Level = int | Mapping[str, int]
"""A whole number, or one for each leaf, by its name."""


class Decision(NamedTuple):
    """One decision.

    Attributes:
      step: the number of steps taken, after which the level holds.
      level: the level.
      why: "start", "rule", "dwell" where it may not change yet, or which reading was
        not a number, so that the last level holds, as in "loss is nan".
      readings: what it was decided from, as floats.
    """

    step: int
    level: Level
    why: str
    readings: Mapping[str, Any]


class Record(NamedTuple):
    """The decisions so far, and what the controller remembers.

    Attributes:
      decisions: in the order of their steps; the first is the start.
      memory: the controller's own, a function of the readings.
      since: the step from which the level in force holds; 0 at the start.
    """

    decisions: tuple[Decision, ...]
    memory: Any = None
    since: int = 0

    @property
    def level(self) -> Any:
        """The level in force: a whole number, or one for each leaf, by name."""
        return self.decisions[-1].level

    @property
    def table(self) -> list[tuple[int, Any]]:
        """Rows (step, level), one for each change of the level."""
        return table_of(self.decisions)

    def save(
        self, path: str | Path, *, options: Mapping[str, int] | None = None
    ) -> None:
        """Writes the decisions, a JSON file; `load` reads them.

        Args:
          path: the file.
          options: of the method, which hold beside the table, such as `highest`.

        Raises:
          ValueError: the path is an address, not a local file.
        """
        rows = [
            list(row._replace(readings=_spelled(row.readings)))
            for row in self.decisions
        ]
        found = {"table": self.table, "decisions": rows}
        found |= {"options": options} if options else {}
        text = json.dumps(found, indent=1, default=number)
        write_whole(local_path("controllers.Record.save", "path", path), text + "\n")


def table_of(decisions: Iterable[Decision]) -> list[tuple[int, Any]]:
    """Rows (step, level) of the decisions that changed the level.

    They are what `relaxjax.periods.table` takes of periods, and their `dict` is what
    `rank=` of `relaxjax.power_sgd` takes of ranks.

    Args:
      decisions: those of a record, or of a file.

    Example:
      >>> from relaxjax.controllers import Decision, table_of
      >>> table_of([Decision(0, 4, "start", {}), Decision(9, 4, "rule", {"loss": 1.0})])
      [(0, 4)]
    """
    rows: list[tuple[int, Any]] = []
    for step, level, _, _ in decisions:
        if not rows or rows[-1][1] != level:
            rows.append((step, level))
    return rows


def load(path: str | Path) -> tuple[Decision, ...]:
    """Reads the decisions that `Record.save` wrote.

    Args:
      path: the JSON file.

    Returns:
      The decisions, for `table_of` or `Controller.replayed`.

    Raises:
      ValueError: the file is missing, or does not hold decisions.
    """
    return tuple(
        Decision(step, level, why, jax.tree.map(float, readings))
        for step, level, why, readings in _read(path)["decisions"]
    )


def options_in(path: str | Path) -> dict[str, int]:
    """The options that stand beside the decisions; see `load`."""
    return _read(path).get("options", {})


def _read(path: str | Path) -> dict[str, Any]:
    path = local_path("controllers.load", "path", path)
    try:
        found = read_json(path, LARGE)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as decisions: {error}") from error
    if says := wrong({"decisions": [(int, object, str, object)]}, found):
        raise ValueError(f"{path} holds no decisions: {says}")
    for _, level, _, _ in found["decisions"]:
        levels = list(level.values()) if isinstance(level, dict) else [level]
        if says := wrong([int], levels, "the levels"):
            raise ValueError(f"{path} holds no decisions: {says}")
    options = found.get("options", {})
    given = [*options.values()] if isinstance(options, dict) else [options]
    if says := wrong([int], given, "the options"):
        raise ValueError(f"{path} holds no decisions: {says}")
    return found


def _spelled(readings: Any) -> Any:
    """Readings as JSON has them, which has no NaN and no infinity."""
    return jax.tree.map(lambda x: x if math.isfinite(x) else str(x), readings)

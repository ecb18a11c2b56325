"""Controllers as text, for command lines: a name, a colon, its numbers.

    periods=ada_comm:start=16,shrink=0.5
    ranks=accordion:low=1,high=4,every=200
    ranks=table:0=4,1000=1                      no controller, but levels by steps
    periods=recorded:run/decisions.json         likewise, those of a record

`every` is how many steps lie between two questions; a period is asked about after each
meeting.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from relaxjax._core._checks import require_whole
from relaxjax._core.foreign._words import number_of
from relaxjax.controllers._accordion import accordion
from relaxjax.controllers._ada_comm import ada_comm
from relaxjax.controllers._controller import Controller
from relaxjax.controllers._record import load, table_of
from relaxjax.periods import table

Rows = list[tuple[int, Any]]
"""A table: from these steps on, these levels."""


class Spelled(NamedTuple):
    """What a text says.

    Attributes:
      controller: the controller.
      every: steps between two questions; None: it is asked at each meeting.
      options: from a table, rows (step, level), to the options of the method.
    """

    controller: Controller
    every: int | None
    options: Callable[[Rows], dict[str, Any]]


class _Kind(NamedTuple):
    """Controllers of one option.

    Attributes:
      made: what makes them, by name.
      own: whole numbers of the option itself.
      options: from a table to the options of the method.
      beside: from the numbers to further options.
      example: a text.
    """

    made: Mapping[str, Callable[..., Controller]]
    own: tuple[str, ...]
    options: Callable[[Rows], dict[str, Any]]
    beside: Callable[[Mapping[str, Any]], dict[str, Any]]
    example: str


_KINDS = {
    "periods": _Kind(
        {"ada_comm": ada_comm},
        (),
        lambda rows: {"periods": table(rows)},
        lambda _: {},
        "ada_comm:start=16",
    ),
    "ranks": _Kind(
        {"accordion": accordion},
        ("every",),
        lambda rows: {"rank": dict(rows)},
        lambda numbers: {"highest": max(numbers["low"], numbers["high"])},
        "accordion:low=1,high=4,every=200",
    ),
}
DECIDED = tuple(_KINDS)
"""Options that may name a controller."""


def is_controller(option: str, text: Any) -> bool:
    """Whether a text names a controller, or tries to: ranks have no other names."""
    name = text.partition(":")[0] if isinstance(text, str) else None
    tries = option == "ranks" and name not in (None, "table", "recorded")
    return tries or name in _KINDS[option].made


def without_tables(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options, with what a record or a text says in place of `recorded:` and `table:`.

    Raises:
      ValueError: a file that is no record, a word that is not STEP=RANK, a step that
        stands twice, or an option that is stated besides.
    """
    found = dict(options)
    for option, kind in _KINDS.items():
        if (rows := _rows_of(option, found.get(option))) is None:
            continue
        text = found.pop(option)
        said = kind.options(rows)
        if both := [key for key in said if key in found]:
            raise ValueError(
                f"{option} {text!r} and {both[0]}={found[both[0]]} both say it: leave "
                "one out"
            )
        found |= said
    return found


def _rows_of(option: str, text: Any) -> Rows | None:
    """The rows that a text names; None if it names no table."""
    name, _, rest = text.partition(":") if isinstance(text, str) else ("", "", "")
    if name == "recorded" and not rest:
        raise ValueError(
            f"{option} {text!r}: name the file, as in recorded:runs/a/decisions.json"
        )
    if name == "recorded":
        return table_of(load(rest))
    if option != "ranks" or name != "table":
        return None  # tables of periods are schedules
    rows = [_row(text, word) for word in rest.split(",")]
    if len(dict(rows)) < len(rows):
        raise ValueError(f"ranks {text!r}: a step stands twice; leave one out")
    return rows


def spelled_controller(option: str, text: str) -> Spelled:
    """The controller that a text names.

    Args:
      option: "periods" or "ranks".
      text: the text.

    Raises:
      ValueError: an unknown controller, a missing or an unknown argument, a word that
        is not a number, or a value that the controller refuses.
    """
    kind = _KINDS[option]
    name, _, rest = text.partition(":")
    wrong = f"{option} {text!r}: "
    if name not in kind.made:
        raise ValueError(
            f"{wrong}there is no controller {name!r}; there is {', '.join(kind.made)}, "
            f"as in {kind.example}"
        )
    numbers = dict(_pair(wrong, kind, word) for word in rest.split(",") if word)
    parameters = inspect.signature(kind.made[name]).parameters
    needed = {k for k, p in parameters.items() if p.default is p.empty} | {*kind.own}
    if odd := numbers.keys() - parameters.keys() - {*kind.own}:
        known = ", ".join([*parameters, *kind.own])
        raise ValueError(f"{wrong}{name} has no {min(odd)!r}; it has {known}")
    if missing := needed - numbers.keys():
        raise ValueError(f"{wrong}{name} needs {min(missing)}, as in {kind.example}")
    for k in kind.own:
        require_whole(wrong + name, k, numbers[k])
    made = kind.made[name](**{k: numbers[k] for k in numbers if k in parameters})
    beside = kind.beside(numbers)
    return Spelled(made, numbers.get("every"), lambda rows: kind.options(rows) | beside)


def _pair(wrong: str, kind: _Kind, word: str) -> tuple[str, Any]:
    key, _, value = word.partition("=")
    number = number_of(value)
    if number is None:
        raise ValueError(f"{wrong}{word!r} must be NAME=NUMBER, as in {kind.example}")
    return key, number


def _row(text: str, word: str) -> tuple[int, Any]:
    step, _, rank = (x.strip() for x in word.partition("="))
    if not (step.isdigit() and rank.isdigit()):
        raise ValueError(
            f"ranks {text!r}: {word!r} must be STEP=RANK, as in table:0=4,1000=1"
        )
    return int(step), int(rank)

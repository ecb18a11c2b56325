"""Controllers as text, for command lines: a name, a colon, its numbers.

    periods=ada_comm:start=16,shrink=0.5
    ranks=accordion:low=1,high=4,every=200
    ranks=l_greco:rank=2,every=200
    codes=accordion:low=4,high=8,every=200      bits of all leaves
    ranks=table:0=4,1000=1                      no controller, but levels by steps
    periods=recorded:run/decisions.json         likewise, those of a record

`every` is how many steps lie between two questions; a period is asked about after each
meeting.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from relaxjax._core._checks import require_whole
from relaxjax._core.foreign._words import number_of
from relaxjax.controllers._accordion import accordion
from relaxjax.controllers._ada_comm import ada_comm
from relaxjax.controllers._controller import Controller
from relaxjax.controllers._from_state import errors_of_ranks, whole_norm
from relaxjax.controllers._l_greco import l_greco_of_state
from relaxjax.periods import table

Rows = list[tuple[int, Any]]
"""A table: from these steps on, these levels."""


class Spelled(NamedTuple):
    """What a text says.

    Attributes:
      controller: the controller.
      every: steps between two questions; None: it is asked at each meeting.
      options: from a table, rows (step, level), to the options of the method.
      beside: further options, which the table does not say.
      readings: as in `relaxjax.controllers.Conducted`.
    """

    controller: Controller
    every: int | None
    options: Callable[[Rows], dict[str, Any]]
    beside: Mapping[str, int]
    readings: Callable[[Any, float], Mapping[str, Any]] | None = None


class _Kind(NamedTuple):
    """Controllers of one option.

    Attributes:
      made: what makes them, by name.
      own: whole numbers of the option itself.
      options: from a table to the options of the method.
      beside: from the numbers to further options.
      example: a text.
      readings: by a controller's name, from its numbers to what it reads; those that
        are not there read the mean loss and the norms of leaves.
    """

    made: Mapping[str, Callable[..., Controller]]
    own: tuple[str, ...]
    options: Callable[[Rows], dict[str, Any]]
    beside: Callable[[Mapping[str, Any]], dict[str, Any]]
    example: str
    readings: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {}


def _highest(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of Q that the ranks of a controller need."""
    if "rank" in numbers:
        return {"highest": 2 * numbers["rank"]}
    return {"highest": max(numbers["low"], numbers["high"])}


def _bits(rows: Rows) -> dict[str, Any]:
    """One number of bits for all leaves; a level by name has the name ""."""
    of_all = ((step, x[""] if isinstance(x, Mapping) else x) for step, x in rows)
    return {"codes": dict(of_all)}


KINDS = {
    "periods": _Kind(
        {"ada_comm": ada_comm},
        (),
        lambda rows: {"periods": table(rows)},
        lambda _: {},
        "ada_comm:start=16",
    ),
    "ranks": _Kind(
        {"accordion": accordion, "l_greco": l_greco_of_state},
        ("every",),
        lambda rows: {"rank": dict(rows)},
        _highest,
        "accordion:low=1,high=4,every=200",
        {"l_greco": lambda numbers: partial(errors_of_ranks, numbers["rank"])},
    ),
    "codes": _Kind(
        {"accordion": accordion},
        ("every",),
        _bits,
        lambda _: {},
        "accordion:low=4,high=8,every=200",
        {"accordion": lambda _: whole_norm},
    ),
}
DECIDED = tuple(KINDS)
"""Options that may name a controller."""


def is_controller(option: str, text: Any) -> bool:
    """Whether a text names one, or tries to: ranks and codes have no other names."""
    name = text.partition(":")[0] if isinstance(text, str) else None
    tries = option != "periods" and name not in (None, "table", "recorded")
    return tries or name in KINDS[option].made


def spelled_controller(option: str, text: str) -> Spelled:
    """The controller that a text names.

    Args:
      option: "periods", "ranks" or "codes".
      text: the text.

    Raises:
      ValueError: an unknown controller, a missing or an unknown argument, a word that
        is not a number, or a value that the controller refuses.
    """
    kind = KINDS[option]
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
    beside, readings = kind.beside(numbers), kind.readings.get(name)
    return Spelled(
        made,
        numbers.get("every"),
        lambda rows: kind.options(rows) | beside,
        beside,
        readings and readings(numbers),
    )


def _pair(wrong: str, kind: _Kind, word: str) -> tuple[str, Any]:
    key, _, value = word.partition("=")
    number = number_of(value)
    if number is None:
        raise ValueError(f"{wrong}{word!r} must be NAME=NUMBER, as in {kind.example}")
    return key, number

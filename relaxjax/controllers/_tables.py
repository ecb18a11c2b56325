"""Levels by steps as text, for command lines, and the options that they stand for.

    ranks=table:0=4,1000=1
    codes=table:0=8,1000=4
    periods=recorded:run/decisions.json         those of a record

A record also says which options held beside its table, such as `highest`.
"""

from collections.abc import Mapping
from typing import Any

from relaxjax.controllers._record import load, options_in, table_of
from relaxjax.controllers._spelled import KINDS, Rows


def without_tables(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options, with what a record or a text says in place of `recorded:` and `table:`.

    Raises:
      ValueError: a file that is no record, a word that is not STEP=LEVEL, a step that
        stands twice, or an option that is stated besides.
    """
    found = dict(options)
    for option, kind in KINDS.items():
        if (rows := _rows_of(option, found.get(option))) is None:
            continue
        text = found.pop(option)
        said = kind.options(rows) | _beside(text)
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
    if option == "periods" or name != "table":
        return None  # tables of periods are schedules
    wrong = f"{option} {text!r}: "
    rows = [_row(wrong, word) for word in rest.split(",")]
    if len(dict(rows)) < len(rows):
        raise ValueError(f"{wrong}a step stands twice; leave one out")
    return rows


def _beside(text: str) -> dict[str, Any]:
    name, _, path = text.partition(":")
    return options_in(path) if name == "recorded" else {}


def _row(wrong: str, word: str) -> tuple[int, Any]:
    step, _, level = (x.strip() for x in word.partition("="))
    if not (step.isdigit() and level.isdigit()):
        raise ValueError(f"{wrong}{word!r} must be STEP=LEVEL, as in table:0=4,1000=1")
    return int(step), int(level)

"""Tables whose names stay whole and whose figures stand in line, at any width."""

import math
from collections.abc import Sequence
from typing import TypeGuard

from rich.console import Console
from rich.table import Table
from rich.text import Text

_GAP = "  "


def aligned(values: Sequence[object], digits: int = 3) -> list[str]:
    """A column's figures with the same decimals: so many digits for the least of them.

    What is no number is shown as it is, None as a dash.
    """
    sizes = [abs(x) for x in values if _is_figure(x)]
    least = min((size for size in sizes if size), default=1.0)
    whole = all(isinstance(x, int) for x in values if _is_figure(x))
    places = 0 if whole else min(max(digits - 1 - math.floor(math.log10(least)), 0), 6)
    return [
        f"{x:,.{places}f}" if _is_figure(x) else "-" if x is None else str(x)
        for x in values
    ]


def _is_figure(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and math.isfinite(value)


def show(console: Console, table: Table) -> None:
    """Prints a table: in its frame, or as a list where the frame would break a name.

    In the list, what does not fit beside its figures stands on a line above them.
    """
    room = console.options.update(max_width=10_000)
    if console.measure(table, options=room).maximum <= console.width:
        console.print(table)
        return
    if table.title:
        console.print(table.title, style="italic", soft_wrap=True)
    for line, style in zip(*_listed(table, console.width), strict=True):
        console.print(Text(line), style=style, soft_wrap=True)


def _listed(table: Table, width: int) -> tuple[list[str], list[str]]:
    """Lines of a table, and their styles; its widest left column has the names."""
    heads = [str(column.header).split("\n") for column in table.columns]
    deep = max(map(len, heads))
    columns = [
        [""] * (deep - len(head)) + head + [str(cell) for cell in column.cells]
        for head, column in zip(heads, table.columns, strict=True)
    ]
    widths = [max(map(len, cells)) for cells in columns]
    right = [column.justify == "right" for column in table.columns]
    at = max((i for i, x in enumerate(right) if not x), key=widths.__getitem__)
    room = max(width - sum(w + len(_GAP) for w in widths[at + 1 :]), len(_GAP))
    styles = ["bold"] * deep + [str(row.style or "") for row in table.rows]
    lines, marks = [], []
    for row, style in zip(zip(*columns, strict=True), styles, strict=True):
        cells = [
            cell.rjust(w) if side else cell.ljust(w)
            for cell, w, side in zip(row, widths, right, strict=True)
        ]
        name = _GAP.join([*cells[:at], row[at]])
        figures = "".join(_GAP + cell for cell in cells[at + 1 :]).rstrip()
        beside = len(name) <= room
        lines += (
            [name.ljust(room) + figures] if beside else [name, " " * room + figures]
        )
        marks += [style] * (1 if beside else 2)
    return lines, marks

"""Tables of runs that were printed, with their command and conditions.

A file of docs/results has columns, and rows of cells: a number, a pair, a difference
with its interval, a value with such a difference, or a word. Fractions of a column have
as many digits behind the point as `digits` says.
"""

from typing import Any

from scripts.tables.rows import heads, result, row, within


def table(name: str) -> list[str]:
    """The table of a file; the first cell of each row in `best` is bold."""
    found = result(name)
    first, *rest = found["columns"]
    digits = found.get("digits", [0] * len(rest))
    lines = heads(first, rest)
    for label, *cells in found["rows"]:
        shown = [_cell(x, d) for x, d in zip(cells, digits, strict=True)]
        bold = "**" if label in found.get("best", ()) else ""
        lines.append(row(f"{bold}{label}{bold}", shown))
    return lines


def _cell(cell: Any, digits: int) -> str:
    if isinstance(cell, list) and len(cell) > 2:
        value, (worse, low, high) = cell[:-3], cell[-3:]
        point = 2 if value else digits
        shown = within((worse, low, high), point)
        return f"{value[0]:.{digits}f} ({shown})" if value else shown
    if isinstance(cell, list):
        return ", ".join(_cell(x, digits) for x in cell)
    if isinstance(cell, float):
        return f"{cell:.{digits}f}"
    return "" if cell is None else str(cell)

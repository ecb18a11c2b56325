"""Tables of runs that were printed, with their command and conditions.

A file of docs/results has columns, and rows of cells: a number, a word, or nothing.
Fractions of a column have as many digits behind the point as `digits` says.
"""

from typing import Any

from scripts.tables.rows import heads, result, row


def table(name: str) -> list[str]:
    """The table of a file."""
    found = result(name)
    first, *rest = found["columns"]
    digits = found.get("digits", [0] * len(rest))
    lines = heads(first, rest)
    for label, *cells in found["rows"]:
        both = zip(cells, digits, strict=True)
        lines.append(row(label, [_cell(x, point) for x, point in both]))
    return lines


def _cell(cell: Any, digits: int) -> str:
    if isinstance(cell, float):
        return f"{cell:.{digits}f}"
    return "" if cell is None else str(cell)

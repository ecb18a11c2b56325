"""Orders of pulls in programs for eight H100s that were not run."""

from statistics import median
from typing import Any

from scripts.tables.rows import heads, result, row

MIB = 2**20
TITLES = {"best": "best", "tac": "TAC", "layer": "layer", "tic": "TIC"}
SHARES = ("forward", "backward")
"""Products of the pass under a transfer."""
Row = dict[str, Any]


def shares() -> list[str]:
    """Shares of products under pulls and pushes, by order and size of a transfer."""
    rows = result("pulls")["rows"]
    lines = heads("order", ["MiB", "transfers", *SHARES, "exposed ms"])
    for size in sorted({each["bytes"] for each in rows}):
        lines += _lines([x for x in rows if x["bytes"] == size])
    return lines


def _lines(rows: list[Row]) -> list[str]:
    """A line for each order; those with equal cells, and random ones, share it."""
    shared: dict[tuple[str, ...], list[str]] = {}
    for name, title in TITLES.items():
        own = _cells([x for x in rows if x["order"] == name])
        shared.setdefault(tuple(own), []).append(title)
    lines = [row(", ".join(names), own) for own, names in shared.items()]
    drawn = [x for x in rows if _random(x)]
    label = f"random, {len(drawn)}: least, median, most"
    reverse = [x for x in rows if x["order"] == "reversed"]
    return [*lines, row(label, _cells(drawn)), row("reversed", _cells(reverse))]


def _cells(rows: list[Row]) -> list[str]:
    counts = sorted({x["transfers"] for x in rows})
    transfers = " - ".join(str(x) for x in dict.fromkeys((counts[0], counts[-1])))
    size = f"{rows[0]['bytes'] / MIB:g}"
    shares = [_spread([x[name] for x in rows], ".3f") for name in SHARES]
    return [size, transfers, *shares, _spread([1e3 * x["exposed"] for x in rows])]


def _spread(values: list[float], form: str = "#.3g") -> str:
    """The least, the median and the most, or the only one."""
    ends = [min(values), median(values), max(values)]
    shown = [f"{x:{form}}" for x in (ends if len(values) > 1 else ends[:1])]
    return ", ".join(shown)


def _random(each: Row) -> bool:
    return each["order"].startswith("random")

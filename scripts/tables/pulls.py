"""Orders of pulls and of copies in programs for H100s that were not run."""

from collections.abc import Callable
from functools import partial
from statistics import mean, median
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
        lines += _lines([x for x in rows if x["bytes"] == size], _cells)
    return lines


def copies() -> list[str]:
    """Orders of copies from host memory, with XLA's profile and without it."""
    rows = result("host-copies")["rows"]
    columns = [
        "profiled",
        *SHARES,
        "exposed ms",
        "throughput over the mean random order",
    ]
    lines = heads("order", columns)
    for suffix, said in {", profiled": "yes", "": "no"}.items():
        own = [x for x in rows if x["order"].endswith("profiled") == bool(suffix)]
        bare = [x | {"order": x["order"].removesuffix(suffix)} for x in own]
        drawn = mean(_step(x) for x in bare if _random(x))
        lines += _lines(bare, partial(_copied, profiled=said, drawn=drawn))
    return lines


def _step(each: Row) -> float:
    return each["compute"] + each["exposed"]


def _copied(rows: list[Row], *, profiled: str, drawn: float) -> list[str]:
    _, _, *shown = _cells(rows)
    gain = "" if _random(rows[0]) else f"{drawn / _step(rows[0]):.3f}"
    return [profiled, *shown, gain]


def _lines(rows: list[Row], cells: Callable[[list[Row]], list[str]]) -> list[str]:
    """A line for each order; those with equal cells, and random ones, share it."""
    shared: dict[tuple[str, ...], list[str]] = {}
    for name, title in TITLES.items():
        own = cells([x for x in rows if x["order"] == name])
        shared.setdefault(tuple(own), []).append(title)
    lines = [row(", ".join(names), own) for own, names in shared.items()]
    drawn = [x for x in rows if _random(x)]
    label = f"random, {len(drawn)}: least, median, most"
    reverse = [x for x in rows if x["order"] == "reversed"]
    return [*lines, row(label, cells(drawn)), row("reversed", cells(reverse))]


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

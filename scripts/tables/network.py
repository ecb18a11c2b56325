"""Seconds of a step and to a loss, between the hosts of the network lab."""

from collections.abc import Mapping
from statistics import median
from typing import Any, NamedTuple

from scripts.tables.rows import heads, result, row

ALL_REDUCE = 2 * 3 / 4 * 4 * 3_241_600  # bytes that each of four hosts sends
SYSTEMS = {"relaxjax": "#0a84d0", "PyTorch": "#d9600a"}


class Point(NamedTuple):
    """A method between hosts at a rate.

    Attributes:
      rate: Mbit/s of each host's link.
      label: the method.
      seconds: to the loss: of the median, the shortest and the longest block.
    """

    rate: float
    label: str
    seconds: tuple[float, float, float]


def to_the_loss(found: Any) -> dict[float, dict[str, Point]]:
    """Each method that reaches the loss, by rate."""
    by_rate: dict[float, dict[str, Point]] = {}
    for rate in sorted({block["rate"] for block in found["blocks"]}):
        by_rate[rate] = {}
        for label, needed in found["steps_to_loss"].items():
            own = _seconds(found, rate, label)
            if own and needed < 1e9 and "alone" not in label:
                seconds = needed * median(own), needed * min(own), needed * max(own)
                by_rate[rate][label] = Point(rate, label, seconds)
    return by_rate


def _seconds(found: Any, rate: float, label: str) -> list[float]:
    here = (b for b in found["blocks"] if (b["rate"], b["method"]) == (rate, label))
    return [block["seconds"] for block in here]


def best(points: Mapping[str, Point], system: str) -> Point:
    """The first at the loss of a system."""
    own = [p for x, p in points.items() if x.startswith("DDP") == (system == "PyTorch")]
    return min(own, key=lambda point: point.seconds)


def steps() -> list[str]:
    """Seconds of a step, medians of blocks."""
    found = result("network")
    rates = sorted({block["rate"] for block in found["blocks"]})
    shown = [f"{rate:g} Mbit/s" for rate in rates]
    lines = heads("", [*shown, "bytes a step, of an all-reduce"])
    labels = [label for label in found["steps_to_loss"] if label[:4] != "DDP "]
    theirs = [label for label in found["steps_to_loss"] if label[:4] == "DDP "]
    for label in ["alone", *labels, "DDP alone", *theirs]:
        cells = [f"{median(_seconds(found, rate, label)):.3f}" for rate in rates]
        stated = found["stated"].get(label)
        cells.append(f"{stated:,.0f}, 1/{ALL_REDUCE / stated:.0f}" if stated else "")
        name = label.replace("alone", "no communication")
        lines.append(row(name if name != label else f"`{label}`", cells))
    return lines


def times() -> list[str]:
    """Seconds to the loss, and how the best of both systems compare."""
    found = result("network")
    by_rate = to_the_loss(found)
    lines = heads("", [f"{rate:g} Mbit/s" for rate in by_rate])
    for label in found["steps_to_loss"]:
        points = [each.get(label) for each in by_rate.values()]
        if not any(points):
            continue
        cells = [f"{p.seconds[0]:.1f}" if p else "" for p in points]
        for i, each in enumerate(by_rate.values()):
            if label in {best(each, system).label for system in SYSTEMS}:
                cells[i] = f"**{cells[i]}**"
        lines.append(row(f"`{label}`", cells))
    ratios = ("{:.2f} [{:.2f}, {:.2f}]".format(*v["time"]["ratio"])
              for v in found["verdicts"])  # fmt: skip
    lines.append(row("relaxjax's best over PyTorch's", list(ratios)))
    return lines

"""Tables, JSON and the plot of the network bench."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from relaxjax.bench._measure import Ratio, ratio
from relaxjax.bench._network_methods import DDP, Method
from relaxjax.bench._report import plot, save, show

Row = Mapping[str, Any]
TARGETS = {20.0: 0.85, 50.0: 0.92}
"""Of time to the loss, over the best hook's, by Mbit/s; elsewhere 1."""


def values(blocks: Sequence[Row], rate: float, label: str, what: str) -> list[float]:
    """What the blocks of a method say, in order of time.

    Args:
      blocks: measured.
      rate: at which.
      label: of the method.
      what: key.
    """
    own = (b for b in blocks if b["rate"] == rate and b["method"] == label)
    return [b[what] for b in own]


def medians(blocks: Sequence[Row], rate: float, what: str = "seconds") -> dict:
    """The medians over blocks by label.

    Args:
      blocks: measured.
      rate: at which.
      what: key.
    """
    labels = dict.fromkeys(b["method"] for b in blocks if b["rate"] == rate)
    return {n: median(values(blocks, rate, n, what)) for n in labels}


def paired(blocks: Sequence[Row], rate: float, one: str, other: str) -> Ratio:
    """The ratio of two methods' seconds over the rounds that have both.

    Args:
      blocks: measured.
      rate: at which.
      one: label of the candidate.
      other: label of the baseline.
    """
    rounds: dict[str, dict[int, float]] = {one: {}, other: {}}
    for b in blocks:
        if b["rate"] == rate and b["method"] in rounds:
            rounds[b["method"]][b["round"]] = b["seconds"]
    both = sorted(rounds[one].keys() & rounds[other].keys())
    return ratio([rounds[one][r] for r in both], [rounds[other][r] for r in both])


def verdict(result: Row, methods: Sequence[Method], rate: float) -> Row | None:
    """The best relaxation of every step against the best hook, to the stated loss.

    Args:
      result: what was measured.
      methods: rows.
      rate: at which.

    Returns:
      Who, and the ratio of times with its interval; None without hooks.
    """
    blocks, needed = result["blocks"], result["steps_to_loss"]
    seconds = medians(blocks, rate)
    best: dict[bool, Method] = {}
    for hook in (False, True):
        own = [m for m in methods if m.contends and (m.system == DDP) == hook]
        if not own:
            return None
        best[hook] = min(own, key=lambda m: seconds[m.label] * needed[m.label])
    ours, theirs = best[False].label, best[True].label
    steps = needed[ours] / needed[theirs]
    found = paired(blocks, rate, ours, theirs)
    target = TARGETS.get(rate, 1.0)
    return {
        "rate": rate,
        "relaxation": ours,
        "hook": theirs,
        "step": [found.median, found.low, found.high, found.pairs],
        "steps": steps,
        "time": [steps * x for x in (found.median, found.low, found.high)],
        "target": target,
        "met": steps * found.low <= target,
    }


def write(result: dict[str, Any], methods: Sequence[Method], folder: Path) -> None:
    """JSON, and the plot of efficiency against rates.

    Args:
      result: what was measured.
      methods: rows.
      folder: where to.
    """
    rates = sorted({b["rate"] for b in result["blocks"]})
    result["verdicts"] = [verdict(result, methods, rate) for rate in rates]
    path = save(result, folder, "network")
    lines = {}
    for method in methods:
        if not method.alone:
            each = [efficiency(result["blocks"], rate, method) for rate in rates]
            lines[method.label] = (rates, each)
    axes = "Mbit/s of each host's link", "step without communication / step"
    plot(path, "Scaling efficiency over 4 hosts", axes, lines)


def efficiency(blocks: Sequence[Row], rate: float, method: Method) -> float:
    """A step of the system without communication, over a step of the method.

    Args:
      blocks: measured.
      rate: at which.
      method: which.
    """
    base = "DDP alone" if method.system == DDP else "alone"
    return 1 / paired(blocks, rate, method.label, base).median


def show_all(result: Row, methods: Sequence[Method]) -> None:
    """Prints a table for each rate, and who is best.

    Args:
      result: what was measured.
      methods: rows.
    """
    print(result["conditions"])
    blocks = result["blocks"]
    for rate in sorted({b["rate"] for b in blocks}):
        seconds, busy = medians(blocks, rate), medians(blocks, rate, "busy")
        sent = medians(blocks, rate, "sent")
        rows = []
        for m in methods:
            n, needed = m.label, result["steps_to_loss"].get(m.label)
            curve = result["curves"].get(n)
            rows.append(
                (
                    n,
                    seconds[n],
                    "" if m.alone else efficiency(blocks, rate, m),
                    result["stated"].get(n, "") if not m.alone else "",
                    sent[n],
                    busy[n],
                    curve[-1][2] if curve else "",
                    needed if needed else "",
                    needed * seconds[n] if needed else "",
                    len(values(blocks, rate, n, "seconds")),
                )
            )
        columns = ("method", "s/step", "efficiency", "bytes stated", "kernel's")
        columns = (*columns, "CPU s/step", "loss", "steps to loss", "s to loss", "n")
        show(f"{rate:g} Mbit/s, loss {result['loss']:.3f}", columns, rows)
    for found in result["verdicts"]:
        print(json.dumps(found))

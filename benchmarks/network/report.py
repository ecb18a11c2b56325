"""Tables, JSON and the plot of the network bench."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measure import Ratio, ratio
from benchmarks.network.curves import Curve, steps_to
from benchmarks.network.forecast import forecast
from benchmarks.network.methods import ALONE, DDP, RELAXJAX, Method
from benchmarks.report import plot, save, show

Row = Mapping[str, Any]
STEPS, CURVES = "network_steps", "network_curves.json"
PLAIN = {RELAXJAX: "all_reduce", DDP: "DDP fp32"}
"""What a step is called that sends gradients as they are."""
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


def medians(
    blocks: Sequence[Row], rate: float, what: str = "seconds"
) -> dict[str, float]:
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
      Who; the ratio of their steps; "time", all steps as long as those that are
      compressed; and "time_in_full", with first steps that travel as they are at the
      time of a step of plain all-reduce: each the best of its system by that measure.
      None where one of the systems is missing.
    """
    found: dict[str, Any] = {"rate": rate}
    for key, in_full in (("time", False), ("time_in_full", True)):
        best = {s: _best(result, methods, rate, s, in_full) for s in (RELAXJAX, DDP)}
        ours, theirs = best[RELAXJAX], best[DDP]
        if ours is None or theirs is None:
            return None
        step = paired(result["blocks"], rate, ours.label, theirs.label)
        ours_s, theirs_s = (_seconds(result, m, rate, in_full) for m in (ours, theirs))
        medians_ratio = _step(result, ours, rate) / _step(result, theirs, rate)
        factor = ours_s / theirs_s / medians_ratio
        found[key] = {
            "relaxation": ours.label,
            "hook": theirs.label,
            "seconds": [ours_s, theirs_s],
            "step": [step.median, step.low, step.high, step.pairs],
            "ratio": [factor * x for x in (step.median, step.low, step.high)],
            "target": TARGETS.get(rate, 1.0),
        }
    return found


def _best(
    result: Row, methods: Sequence[Method], rate: float, system: str, in_full: bool
) -> Method | None:
    """Of a system's methods that contend, the first at the loss."""
    known = [
        m
        for m in methods
        if m.contends and m.system == system and m.label in result["steps_to_loss"]
    ]
    return min(known, key=lambda m: _seconds(result, m, rate, in_full), default=None)


def _seconds(result: Row, method: Method, rate: float, in_full: bool) -> float:
    """To the stated loss."""
    needed = result["steps_to_loss"][method.label]
    step = _step(result, method, rate)
    if not (in_full and method.start):
        return needed * step
    plain = medians(result["blocks"], rate)[PLAIN[method.system]]
    return method.start * plain + (needed - method.start) * step


def _step(result: Row, method: Method, rate: float) -> float:
    return medians(result["blocks"], rate)[method.label]


def report(
    methods: Sequence[Method], folder: Path, loss: float | None
) -> dict[str, Any]:
    """Prints and saves what the files of a folder say together.

    Args:
      methods: rows.
      folder: of the files, and for the report.
      loss: the stated one; None: as of `steps_needed`.

    Returns:
      What is saved.
    """
    measured = read(folder / f"{STEPS}.json")
    lines = read(folder / CURVES).get("curves", {})
    stated, needed = steps_needed(methods, lines, loss)
    result = {
        "loss": stated,
        "steps_to_loss": needed,
        "curves": lines,
        "conditions": measured.get("conditions"),
        "blocks": measured.get("blocks", []),
        "stated": measured.get("stated", {}),
    }
    rates = sorted({b["rate"] for b in result["blocks"]})
    labels = [set(medians(result["blocks"], rate)) for rate in rates]
    if labels:  # there may be curves of methods of which no steps were measured
        methods = [m for m in methods if m.label in set.intersection(*labels)]
    if len(rates) > 1 and ALONE in set.intersection(*labels):
        seconds = {rate: medians(result["blocks"], rate) for rate in rates}
        result["forecast"] = forecast(methods, seconds, result["stated"], rates[::2])
    result["verdicts"] = [verdict(result, methods, rate) for rate in rates]
    path = save(result, folder, "network")
    _plot(result, methods, path)
    print(result["conditions"])
    for rate in rates:
        _table(result, methods, rate)
    for found in result["verdicts"]:
        print(json.dumps(found, indent=1))
    print("simulated, at rates not told:", result.get("forecast", {}).get("held_out"))
    return result


def read(path: Path) -> dict[str, Any]:
    """A file of one of the parts; empty if there is none.

    Args:
      path: of the JSON.
    """
    return json.loads(path.read_text()) if path.exists() else {}


def steps_needed(
    methods: Sequence[Method], lines: Mapping[str, Curve], loss: float | None
) -> tuple[float | None, dict[str, float]]:
    """The stated loss, and the steps that each method takes to it.

    Args:
      methods: rows.
      lines: curves by label.
      loss: None: the highest that one that contends ends with, so that all reach it.
    """
    known = [m for m in methods if m.label in lines]
    ends = [lines[m.label][-1][2] for m in known if m.contends]
    if loss is None and not ends:
        return None, {}
    stated = max(ends) if loss is None else loss
    return stated, {m.label: steps_to(lines[m.label], stated) for m in known}


def efficiency(blocks: Sequence[Row], rate: float, method: Method) -> Ratio:
    """A step of the system without communication, over a step of the method.

    Args:
      blocks: measured.
      rate: at which.
      method: which.
    """
    base = f"DDP {ALONE}" if method.system == DDP else ALONE
    return paired(blocks, rate, base, method.label)


def _plot(result: Row, methods: Sequence[Method], path: Path) -> None:
    """Efficiency against rates."""
    blocks = result["blocks"]
    rates = sorted({b["rate"] for b in blocks})
    lines = {}
    for method in methods:
        if not method.alone and rates:
            each = [efficiency(blocks, rate, method).median for rate in rates]
            lines[method.label] = (rates, each)
    axes = "Mbit/s of each host's link", "step without communication / step"
    plot(path, "Scaling efficiency", axes, lines)


def _table(result: Row, methods: Sequence[Method], rate: float) -> None:
    """Everything at one rate."""
    blocks = result["blocks"]
    seconds, busy = medians(blocks, rate), medians(blocks, rate, "busy")
    sent = medians(blocks, rate, "sent")
    rows = []
    for m in methods:
        n = m.label
        needed, curve = result["steps_to_loss"].get(n), result["curves"].get(n)
        rows.append(
            (
                n,
                seconds[n],
                "" if m.alone else efficiency(blocks, rate, m).median,
                "" if m.alone else result["stated"].get(n, ""),
                sent[n],
                busy[n],
                curve[-1][2] if curve else "",
                needed or "",
                needed * seconds[n] if needed else "",
                len(values(blocks, rate, n, "seconds")),
            )
        )
    columns = ("method", "s/step", "efficiency", "bytes stated", "kernel's")
    columns = (*columns, "CPU s/step", "loss", "steps to loss", "s to loss", "n")
    show(f"{rate:g} Mbit/s, loss {result['loss']}", columns, rows)

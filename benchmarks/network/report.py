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
from benchmarks.report import Plot, Result, Run, Table

Row = Mapping[str, Any]
STEPS, CURVES = "network_steps", "network_curves.json"
PLAIN = {RELAXJAX: "all_reduce", DDP: "DDP fp32"}
"""Labels of the methods that send gradients as they are."""
TARGETS = {20.0: 0.85, 50.0: 0.92}
"""Time to the loss over the best hook's, by Mbit/s; elsewhere 1."""


def values(blocks: Sequence[Row], rate: float, label: str, key: str) -> list[float]:
    """The values of a method's blocks at a rate, in order of time."""
    return [b[key] for b in blocks if b["rate"] == rate and b["method"] == label]


def medians(
    blocks: Sequence[Row], rate: float, key: str = "seconds"
) -> dict[str, float]:
    """The medians over blocks at a rate, by label."""
    labels = dict.fromkeys(b["method"] for b in blocks if b["rate"] == rate)
    return {n: median(values(blocks, rate, n, key)) for n in labels}


def paired(blocks: Sequence[Row], rate: float, one: str, other: str) -> Ratio:
    """The ratio of two labels' seconds at a rate, over the rounds that have both."""
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
      methods: the methods.
      rate: the rate at which they are compared.

    Returns:
      Both; the ratio of their steps; "time", all steps as long as those that are
      compressed; and "time_in_full", with first steps that travel as they are at the
      time of a step of plain all-reduce, if that was measured: each the best of its
      system by that measure. None where one of the systems is missing.
    """
    verdicts: dict[str, Any] = {"rate": rate}
    measured = medians(result["blocks"], rate)
    for key, in_full in (("time", False), ("time_in_full", True)):
        starts = {PLAIN[m.system] for m in methods if m.label in measured and m.start}
        if in_full and not starts <= measured.keys():
            continue
        best = {s: _best(result, methods, rate, s, in_full) for s in (RELAXJAX, DDP)}
        ours, theirs = best[RELAXJAX], best[DDP]
        if ours is None or theirs is None:
            return None
        step = paired(result["blocks"], rate, ours.label, theirs.label)
        ours_s, theirs_s = (_seconds(result, m, rate, in_full) for m in (ours, theirs))
        medians_ratio = _step(result, ours, rate) / _step(result, theirs, rate)
        factor = ours_s / theirs_s / medians_ratio
        verdicts[key] = {
            "relaxation": ours.label,
            "hook": theirs.label,
            "seconds": [ours_s, theirs_s],
            "step": [step.median, step.low, step.high, step.pairs],
            "ratio": [factor * x for x in (step.median, step.low, step.high)],
            "target": TARGETS.get(rate, 1.0),
        }
    return verdicts


def _best(
    result: Row, methods: Sequence[Method], rate: float, system: str, in_full: bool
) -> Method | None:
    """The first at the loss of a system's methods that contend."""
    known = [
        m
        for m in methods
        if m.contends and m.system == system and m.label in result["steps_to_loss"]
    ]
    return min(known, key=lambda m: _seconds(result, m, rate, in_full), default=None)


def _seconds(result: Row, method: Method, rate: float, in_full: bool) -> float:
    """Seconds to the stated loss."""
    needed = result["steps_to_loss"][method.label]
    step = _step(result, method, rate)
    if not (in_full and method.start):
        return needed * step
    plain = medians(result["blocks"], rate)[PLAIN[method.system]]
    return method.start * plain + (needed - method.start) * step


def _step(result: Row, method: Method, rate: float) -> float:
    return medians(result["blocks"], rate)[method.label]


def report(run: Run, methods: Sequence[Method], loss: float | None) -> Result:
    """Prints and saves what the files of a folder say together.

    Args:
      run: the benchmark, in whose folder the files are.
      methods: the methods.
      loss: the stated loss; None: that of `steps_needed`.

    Returns:
      What is saved.
    """
    measured = read(run.out / f"{STEPS}.json")
    lines = read(run.out / CURVES).get("curves", {})
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
    verdicts = [verdict(result, methods, rate) for rate in rates]
    simulated = result.get("forecast", {}).get("held_out")
    return run.finish(
        result | {"verdicts": verdicts},
        tables=[_table(result, methods, rate) for rate in rates],
        notes=[
            *(json.dumps(each, indent=1) for each in verdicts),
            f"simulated, at rates not fitted to: {simulated}",
        ],
        plots=[_plot(result["blocks"], methods, rates)],
    )


def read(path: Path) -> dict[str, Any]:
    """The JSON of one of the parts; empty if there is no such file."""
    return json.loads(path.read_text()) if path.exists() else {}


def steps_needed(
    methods: Sequence[Method], lines: Mapping[str, Curve], loss: float | None
) -> tuple[float | None, dict[str, float]]:
    """The stated loss, and the steps that each method takes to it.

    Args:
      methods: the methods.
      lines: curves by label.
      loss: the stated loss; None: the highest that one that contends in every step ends
        with, so that all of those reach it.
    """
    known = [m for m in methods if m.label in lines]
    ends = [lines[m.label][-1][2] for m in known if m.contends and m.period == 1]
    if loss is None and not ends:
        return None, {}
    stated = max(ends) if loss is None else loss
    return stated, {m.label: steps_to(lines[m.label], stated) for m in known}


def efficiency(blocks: Sequence[Row], rate: float, method: Method) -> Ratio:
    """A step of the system without communication, over a step of the method."""
    base = f"DDP {ALONE}" if method.system == DDP else ALONE
    return paired(blocks, rate, base, method.label)


def _plot(
    blocks: Sequence[Row], methods: Sequence[Method], rates: Sequence[float]
) -> Plot:
    """Efficiency against rates."""
    lines = {
        m.label: (rates, [efficiency(blocks, rate, m).median for rate in rates])
        for m in methods
        if not m.alone and rates
    }
    axes = "Mbit/s of each host's link", "step without communication / step"
    return Plot("Scaling efficiency", axes, lines)


def _table(result: Row, methods: Sequence[Method], rate: float) -> Table:
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
    return Table(f"{rate:g} Mbit/s, loss {result['loss']}", columns, rows)

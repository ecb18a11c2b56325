"""What plans know of an algorithm: its bytes, and how well it trains beside others."""

import functools
import re
from collections.abc import Iterator
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from relaxjax.plan import Model, Network
from relaxjax.plan._candidate import Candidate
from relaxjax.plan._candidates import candidates
from relaxjax.plan._predict import predict
from relaxjax.plan._quality import bare, measurements

WORKERS = 8
MODEL = Model.of_size(1_000_000, compute=1.0)
CAPTION = (
    "Bytes of a step relative to a plain all-reduce, and how much worse the held-out "
    "metric ends (`python -m benchmarks evidence`). Numbers refer to the table; the "
    "small gray dots are other methods."
)
WORST = 100.0
"""Percent; what ends worse is drawn here."""


@functools.cache
def everything() -> tuple[Candidate, ...]:
    """All candidates of a plan."""
    return tuple(candidates(Network(workers=WORKERS)))


@functools.cache
def shares() -> dict[str, float]:
    """Bytes of each candidate, relative to a plain all-reduce."""
    return {bare(c.label): share(c) for c in everything()}


def planned(names: list[str]) -> Iterator[Candidate]:
    """The candidates of a plan that have one of the names in theirs."""
    seen: set[str] = set()
    for c in everything():
        parts = re.split(r"[+@]", c.relaxation)
        if set(parts) & set(names) and bare(c.label) not in seen:
            seen.add(bare(c.label))
            yield c


def share(c: Candidate) -> float:
    """A candidate's bytes, relative to a plain all-reduce."""
    sent = predict(c, MODEL, Network(workers=WORKERS), 2**23).nbytes
    return sent / (2 * (WORKERS - 1) / WORKERS * 4 * MODEL.size)


def ranked(rows: list[Candidate], picture: Path) -> list[str]:
    """The table and plot of what a plan knows: use, bytes and quality."""
    if not rows:
        return []
    known = measurements()["rows"]
    lines = [
        "| | in a plan | what it does | bytes / plain | digits | chars |",
        "|---|---|---|---|---|---|",
    ]
    for number, c in enumerate(rows, 1):
        tasks = known.get(bare(c.label), {})
        worse = [_percent(tasks.get(task)) for task in ("digits", "chars")]
        cells = [str(number), f"`{bare(c.label)}`", c.why, f"{share(c):.3g}", *worse]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "Digits, chars: how much worse the held-out metric ends than with a "]
    lines[-1] += "plain all-reduce, relative; empty if it was not run. "
    lines[-1] += "[When it pays](../planning.md)."
    numbers = {bare(c.label): number for number, c in enumerate(rows, 1)}
    if numbers.keys() & known.keys():
        draw(numbers, picture.with_suffix(".png"))
        lines += ["", f"![{CAPTION}]({picture.stem}.png)", "", CAPTION]
    return lines


def _percent(result: dict[str, float] | None) -> str:
    if result is None:
        return ""
    percent = 100 * result["worse"]
    if abs(percent) < 0.005:
        return "0\u00a0%"
    return "diverged" if percent > 1e5 else f"{percent:+.2g}\u00a0%"


def draw(numbers: dict[str, int], path: Path) -> None:
    """Draws all that was measured in gray, and these in color with their numbers."""
    figure, sides = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True)
    figure.set_layout_engine("constrained")
    for axes, task in zip(sides, ("digits", "chars"), strict=True):
        rows = measurements()["rows"].items()
        found = {k: v[task] for k, v in rows if task in v and k in shares()}
        worse = {k: min(100 * v["worse"], WORST) for k, v in found.items()}
        at = {k: (100 * shares()[k], y) for k, y in worse.items()}
        others = [point for label, point in at.items() if label not in numbers]
        axes.plot(*zip(*others, strict=True), ".", color="0.7")
        _numbered(axes, {numbers[k]: p for k, p in at.items() if k in numbers})
        axes.set_xscale("log")
        axes.set_yscale("symlog", linthresh=1)
        axes.set(xlabel="bytes, % of a plain all-reduce", title=task)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.grid(alpha=0.3)
    sides[0].set_ylabel("held-out metric, % worse")
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)


def _numbered(axes: Axes, points: dict[int, tuple[float, float]]) -> None:
    """Draws points with their numbers; where points coincide, all numbers in a row."""
    places: dict[tuple[float, float], list[int]] = {}
    for number, (x, y) in points.items():
        places.setdefault((float(f"{x:.2g}"), round(y, 1)), []).append(number)
    for x, y in points.values():
        axes.plot(x, y, "o", color="C3", zorder=3)
    for place, together in places.items():
        label = ", ".join(map(str, together))
        axes.annotate(
            label, place, (4, 4), textcoords="offset points", weight="bold", color="C3"
        )

"""Figures: the metric against steps, bytes and predicted seconds, and who wins where.

Each is as wide as a phone and is meant to stand beside others on a wider page. Lines
end in their names; the color of a method is the same in all.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from relaxjax._core.foreign._extra import extra
from relaxjax.compare.kept._summary import Row, Summary
from relaxjax.compare.page import _margin as margin
from relaxjax.compare.page._styles import GRID, INK, LINES, MUTED, Style, styles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SETTLED = 0.5
"""The metric's axis covers what lies after this part of the steps."""
RC: dict[Any, Any] = {
    "font.size": margin.SIZE,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.color": MUTED,
    "ytick.labelcolor": INK,
    "svg.fonttype": "none",
    "text.parse_math": False,
    "svg.hashsalt": "relaxjax",
}


class Axis(NamedTuple):
    """What the curves are drawn against.

    Attributes:
      name: a short name for files, as in `bytes`.
      label: below the axis; says what is counted, measured or predicted.
      each: what a step costs, by method; a method that is not in it is not drawn.
      unit: what numbers on the axis are followed by.
    """

    name: str
    label: str
    each: Mapping[str, float]
    unit: str = ""


def axes_of(summary: Summary) -> list[Axis]:
    """Steps, bytes, and predicted seconds on each network of a study."""
    rows = summary.rows
    found = [
        Axis("steps", "steps", {row.method: 1.0 for row in rows}),
        Axis(
            "bytes",
            "bytes sent by the busiest worker\n(counted from the program)",
            {row.method: row.bytes_per_step for row in rows if row.bytes_per_step},
            "B",
        ),
    ]
    for index, network in enumerate(summary.study.get("networks", [])):
        name = network["name"]
        each = {row.method: row.seconds[name] for row in rows if name in row.seconds}
        label = f"seconds on {name}\n(predicted; the metric is measured)"
        found.append(Axis(f"seconds_{index + 1}", label, each))
    return found


def shown(summary: Summary, axis: Axis, lines: int | None = LINES) -> list[Row]:
    """Rows that have a line: the baseline, and the best of the others.

    Args:
      summary: a study in numbers.
      axis: what the curves are drawn against.
      lines: the most lines; None draws all.

    Returns:
      Rows in the study's order.
    """
    rows = [row for row in summary.rows if row.curve.steps and row.method in axis.each]
    sign = -1 if summary.better == "higher" else 1

    def merit(row: Row) -> tuple[bool, bool, float]:
        other = row.method != summary.baseline
        return other, row.curve.diverged, sign * row.curve.mean[-1]

    best = sorted(rows, key=merit)[:lines]
    return [row for row in rows if row in best]


def curves(summary: Summary, axis: Axis, *, lines: int | None = LINES) -> "Figure":
    """Draws the validation metric of each method against an axis.

    Args:
      summary: a study in numbers.
      axis: one of `axes_of`.
      lines: the most lines; None draws all.

    Returns:
      A matplotlib figure; lines are means over the seeds, bands their extremes.
    """
    with extra("figures need"):
        import matplotlib
        from matplotlib.figure import Figure
    rows = shown(summary, axis, lines)
    look = styles(summary.study["methods"])
    with matplotlib.rc_context(RC):
        names = [margin.name_of(row) for row in rows]
        height = max(margin.HEIGHT, sum(map(margin.height_of, names)) + margin.ABOVE)
        figure = Figure(figsize=(margin.WIDTH, height))
        inside = (
            margin.RIGHT - margin.LEFT,
            1 - (margin.BELOW + margin.ABOVE) / height,
        )
        chart = figure.add_axes((margin.LEFT, margin.BELOW / height, *inside))
        for row in rows:
            _line(chart, row, axis.each[row.method], look[row.method])
        _title(figure, chart, summary)
        chart.set_xlabel(axis.label, loc="left", linespacing=1.25)
        chart.grid(True)
        _scale_y(chart, rows, summary)
        _scale_x(chart, rows, axis)
        margin.name_lines(figure, chart, rows, axis.each, look)
    return figure


def _title(figure: "Figure", chart: "Axes", summary: Summary) -> None:
    """The metric, and beside it what the dashed line is."""
    place = {"y": 1 - 0.4 * margin.ABOVE / figure.get_figheight(), "va": "center"}
    title = figure.text(
        0.02, s=f"validation {summary.metric_name}", weight="bold", **place
    )
    if summary.target is not None:
        words = f"dashed: target {summary.target:.4g}"
        beside: dict[str, Any] = {"xycoords": title, "textcoords": "offset points"}
        chart.annotate(words, (1, 0.5), (8, 0), color=MUTED, va="center", **beside)


def _line(chart: "Axes", row: Row, each: float, style: Style) -> None:
    x = np.array(row.curve.steps, float) * each
    look: dict[str, Any] = {"color": style.color, "linestyle": style.dash}
    chart.plot(x, row.curve.mean, linewidth=1.6, **look)
    if row.curve.seeds > 1:
        ends = row.curve.low, row.curve.high
        chart.fill_between(x, *ends, color=style.color, alpha=0.14, linewidth=0)
    end = {"marker": "x", "markersize": 6} if row.curve.diverged else {"marker": "."}
    chart.plot(x[-1:], row.curve.mean[-1:], markeredgewidth=1.6, **end, **look)


def _scale_x(chart: "Axes", rows: Sequence[Row], axis: Axis) -> None:
    """Logarithmic where the methods' ends lie far apart."""
    from matplotlib.ticker import (
        EngFormatter,
        FuncFormatter,
        LogLocator,
        MaxNLocator,
        NullFormatter,
    )

    ends = [(_first_seen(chart, row), row.curve.steps[-1]) for row in rows]
    x = np.array(ends, float) * [[axis.each[row.method]] for row in rows]
    if not len(x) or x[:, 1].max() <= 3 * x[:, 1].min() or x.min() <= 0:
        chart.set_xlim(left=0)
        chart.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    else:
        chart.set_xscale("log")
        low, high = x.min(), x.max()
        subs = (1, 3) if np.log10(high / low) < 1.5 else (1,)
        chart.xaxis.set_major_locator(LogLocator(subs=subs, numticks=5))
        chart.xaxis.set_minor_formatter(NullFormatter())
        chart.set_xlim(low / 1.1, high * 1.1)
    plain = FuncFormatter(lambda value, _: f"{value:,g}")
    chart.xaxis.set_major_formatter(EngFormatter(axis.unit) if axis.unit else plain)


def _first_seen(chart: "Axes", row: Row) -> float:
    """The step at which a line enters the picture, or the one before."""
    low, high = sorted(chart.get_ylim())
    inside = [low <= value <= high for value in row.curve.mean]
    return row.curve.steps[max(0, (inside.index(True) if any(inside) else 0) - 1)]


def _scale_y(chart: "Axes", rows: Sequence[Row], summary: Summary) -> None:
    """Covers the later part of the curves and the target."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

    found = [
        value
        for row in rows
        for step, *values in zip(*row.curve[:4], strict=True)
        for value in values
        if step >= SETTLED * row.curve.steps[-1]
    ]
    if summary.target is not None:
        found.append(summary.target)
        chart.axhline(summary.target, color=MUTED, linewidth=0.9, linestyle=(0, (2, 2)))
    low, high = min(found, default=0.0), max(found, default=1.0)
    if summary.better == "lower" and low > 0 and high > 10 * low:
        chart.set_yscale("log")
        chart.set_ylim(low / 1.1, high * 1.1)
        chart.yaxis.set_minor_formatter(NullFormatter())
    else:
        room = 0.06 * (high - low) or 0.1
        chart.set_ylim(low - room, high + room)
        chart.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    chart.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))

"""The names of lines in the margin of a figure, each as near to its line as may be."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from relaxjax._core.foreign._extra import extra
from relaxjax.compare.kept._summary import Row
from relaxjax.compare.page._styles import Style, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, SIZE = 4.2, 9.0
"""Inches, of which a phone shows one in 85 pixels; and points of the text."""
LEFT, RIGHT = 0.125, 0.66
"""The sides of the curves, as parts of the width; names stand to the right."""
HEIGHT, BELOW, ABOVE, LINE = 3.3, 0.61, 0.3, 1.15 * SIZE / 72
"""Inches: a figure unless its names need more, what is below and above, and a line."""
DOTS = (0, (1, 1.6))


def name_lines(
    figure: "Figure",
    chart: "Axes",
    rows: Sequence[Row],
    each: Mapping[str, float],
    look: Mapping[str, Style],
) -> None:
    """Names in the right margin, as near to the lines' ends as their heights allow."""
    from matplotlib.lines import Line2D

    to_figure = chart.transData + figure.transFigure.inverted()
    whole = figure.get_figheight()
    ends, names = [], [name_of(row) for row in rows]
    for row in rows:
        x, y = row.curve.steps[-1] * each[row.method], row.curve.mean[-1]
        low, high = sorted(chart.get_ylim())
        ends.append(to_figure.transform((x, min(max(y, low), high))))
    heights = [height_of(name) / whole for name in names]
    places = apart([end[1] for end in ends], heights, 0.0, 1 - 0.8 * ABOVE / whole)
    for row, end, name, place in zip(rows, ends, names, places, strict=True):
        color, margin = look[row.method].color, RIGHT
        way = [end[0], margin + 0.008, margin + 0.028], [end[1], end[1], place]
        figure.add_artist(Line2D(*way, color=color, linewidth=0.9, linestyle=DOTS))
        swatch = [margin + 0.03, margin + 0.055], [place, place]
        dash = "solid" if look[row.method].dash == "solid" else (0, (0.9, 0.5))
        figure.add_artist(Line2D(*swatch, color=color, linewidth=2.5, linestyle=dash))
        figure.text(margin + 0.065, place, name, va="center", linespacing=1.1)


def name_of(row: Row) -> str:
    return wrapped(row.method) + ("\ndiverged" if row.curve.diverged else "")


def height_of(name: str) -> float:
    """Inches that a name takes in the margin, with the room around it."""
    return LINE * (name.count("\n") + 1.4)


def apart(
    wanted: Sequence[float], heights: Sequence[float], low: float, high: float
) -> list[float]:
    """Places closest to the wanted ones at which nothing overlaps.

    Sorted, place i is a rising number plus the heights below it: isotonic regression.
    """
    if not wanted:
        return []
    with extra("figures need"):
        from scipy.optimize import isotonic_regression
    order = np.argsort(wanted, kind="stable")
    sizes = np.array(heights)[order]
    below = np.cumsum(sizes) - sizes / 2
    free = isotonic_regression(np.array(wanted)[order] - below).x
    free = np.clip(free, low, max(low, high - sizes.sum()))
    result = np.empty(len(wanted))
    result[order] = free + below
    return result.tolist()

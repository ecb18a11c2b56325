"""A topology as a picture: workers on a circle, a panel for each round."""

import math
from os import PathLike

import numpy as np

from relaxjax._core.foreign._extra import extra

_PANELS = 8


def draw_rounds(path: str | PathLike[str], name: str, matrices: np.ndarray) -> None:
    """Writes a PNG of matrices [period, n, n], at most 8 rounds; needs matplotlib."""
    with extra("drawing a topology needs"):
        from matplotlib.figure import Figure
    shown = matrices[:_PANELS]
    columns = min(4, len(shown))
    rows = math.ceil(len(shown) / columns)
    figure = Figure(figsize=(3.2 * columns, 3.2 * rows + 0.5), layout="constrained")
    for number, w in enumerate(shown):
        axes = figure.add_subplot(rows, columns, number + 1)
        _draw_round(axes, w)
        if len(matrices) > 1:
            axes.set_title(f"round {number} of {len(matrices)}", fontsize=9)
    figure.suptitle(f"{name}, n = {matrices.shape[1]}")
    figure.savefig(path, dpi=120, format="png")


def _draw_round(axes, w: np.ndarray) -> None:
    """Lines for equal weights in both directions, else arrows; wider for larger."""
    n = len(w)
    angle = np.pi / 2 - 2 * np.pi * np.arange(n) / n
    place = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    for i, j in zip(*np.nonzero(w), strict=True):
        if i == j or (w[i, j] == w[j, i] and i < j):
            continue
        style = "-" if w[i, j] == w[j, i] else "-|>"
        line = {"arrowstyle": style, "shrinkA": 7, "shrinkB": 7, "color": "C0"}
        width = 0.6 + 2 * w[i, j]
        axes.annotate("", place[i], place[j], arrowprops={**line, "linewidth": width})
    axes.scatter(*place.T, s=160, color="white", edgecolor="black", zorder=3)
    for i, (x, y) in enumerate(place):
        axes.text(x, y, str(i), ha="center", va="center", fontsize=7, zorder=4)
    axes.set_aspect("equal")
    axes.set_axis_off()
    axes.margins(0.15)

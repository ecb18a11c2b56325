"""Plots that are read on white and on black, and at the width of a telephone."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

GRAY = "#808080"
WIDTH = 4.4
"""Inches. At 390 pixels a plot shrinks to 0.85 of it, and letters stay legible."""
ORANGE, BLUE, PINK, GREEN = "#d55e00", "#0a7fd0", "#cc79a7", "#009e73"


def plot(height: float) -> tuple[Figure, Axes]:
    """A figure of that many inches, and its axes."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.subplots()


def grayed(axes: Axes) -> None:
    """Axes and their words in gray, without a frame."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=GRAY, which="both")
    for one in (axes.xaxis.label, axes.yaxis.label, axes.title):
        one.set_color(GRAY)
    for spine in axes.spines.values():
        spine.set_color(GRAY)
    legend = axes.get_legend()
    for text in legend.get_texts() if legend else ():
        text.set_color(GRAY)

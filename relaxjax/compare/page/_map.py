"""The map of who reaches the target first, over bandwidth and latency."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from relaxjax._core.foreign._extra import extra
from relaxjax.compare.kept._summary import Summary
from relaxjax.compare.page import _words as words
from relaxjax.compare.page._figures import RC
from relaxjax.compare.page._margin import SIZE, WIDTH
from relaxjax.compare.page._styles import GRID, INK, MUTED, PAPER, Style, styles
from relaxjax.compare.page._winners import Grid, Win, winners

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Marks = Mapping[str, tuple[str, Style]]
"""The letter and the look of each method that wins somewhere."""
CELL, LINE, TOP, BOTTOM = 0.42, 0.19, 0.34, 0.46
"""Inches: height of a cell, of a line of the key, and of what is above and below."""


def letters(cells: Sequence[Sequence[Win]], methods: Sequence[str]) -> dict[str, str]:
    """A letter for each method that wins somewhere, in the study's order.

    Example:
      >>> from relaxjax.compare.page._map import letters
      >>> from relaxjax.compare.page._winners import Win
      >>> letters([[Win("b", 1.2, False), Win("c", 1.0, True)]], ["a", "b", "c"])
      {'b': 'A', 'c': 'B'}
    """
    won = {cell.method for row in cells for cell in row}
    names = [method for method in methods if method in won]
    return {
        name: chr(ord("A") + index) if index < 26 else str(index)
        for index, name in enumerate(names)
    }


def winners_map(summary: Summary, grid: Grid) -> "Figure":
    """Draws who wins where, with letters and how many times faster than the baseline.

    Args:
      summary: a study in numbers.
      grid: predicted seconds of a step, as in `study.json` under `map`.

    Returns:
      A matplotlib figure.
    """
    with extra("figures need"):
        import matplotlib
        from matplotlib.figure import Figure
    cells, methods = winners(summary, grid), summary.study["methods"]
    look = styles(methods)
    marks = {x: (sign, look[x]) for x, sign in letters(cells, methods).items()}
    notes = _notes(summary, cells)
    key, tall = LINE * (len(marks) + len(notes)) + 0.1, CELL * len(cells)
    height = TOP + tall + BOTTOM + key
    with matplotlib.rc_context(RC):
        figure = Figure(figsize=(WIDTH, height))
        place = (0.165, (BOTTOM + key) / height, 0.82, tall / height)
        chart = figure.add_axes(place)
        chart.set(xlim=(0, len(cells[0])), ylim=(0, len(cells)))
        for y, row in enumerate(cells):
            for x, win in enumerate(row):
                _cell(chart, x, y, win, marks)
        _ticks(chart, grid["gbps"], grid["latency_ms"])
        title = f"first to reach the target, {_target(summary)}"
        figure.text(0.02, 1 - 0.5 * TOP / height, title, weight="bold", va="center")
        _key(figure, marks, notes, key - 0.1)
    return figure


def _target(summary: Summary) -> str:
    name = summary.metric_name
    return f"{name} {summary.target:.4g}" if summary.target is not None else name


def _cell(chart: "Axes", x: int, y: int, win: Win, marks: Marks) -> None:
    from matplotlib.patches import Rectangle

    sign, style = marks[win.method] if win.method else ("-", Style(GRID, "solid", INK))
    ground = {"facecolor": style.color, "edgecolor": PAPER, "linewidth": 1.0}
    chart.add_patch(Rectangle((x, y), 1, 1, **ground))
    text: dict[str, Any] = {"color": style.text, "ha": "center", "va": "center"}
    text["fontsize"] = SIZE
    high = 0.66 if win.times is not None else 0.5
    chart.text(x + 0.5, y + high, sign + "≈" * win.close, weight="bold", **text)
    if win.times is not None:
        text["fontsize"] = SIZE - 2
        chart.text(x + 0.5, y + 0.26, words.times(win.times), **text)


def _ticks(chart: "Axes", gbps: Sequence[float], latency_ms: Sequence[float]) -> None:
    chart.set_xticks([i + 0.5 for i in range(len(gbps))], [f"{b:g}" for b in gbps])
    marks = [i + 0.5 for i in range(len(latency_ms))]
    chart.set_yticks(marks, [f"{late:g}" for late in latency_ms])
    chart.tick_params(length=0)
    chart.spines[:].set_visible(False)
    chart.set_xlabel("bandwidth, Gbit/s", labelpad=2)
    chart.set_ylabel("latency, ms", labelpad=2)


def _notes(summary: Summary, cells: Sequence[Sequence[Win]]) -> list[str]:
    every = [cell for row in cells for cell in row]
    notes = ["steps to the target measured, seconds predicted"]
    if any(cell.times is not None for cell in every):
        notes.append(f"2x: half the time of {summary.baseline}")
    if any(cell.close for cell in every):
        notes.append("≈: another method is within 10 %")
    if any(cell.method is None for cell in every):
        notes.append("-: no method reaches the target")
    return notes


def _key(figure: "Figure", marks: Marks, notes: Sequence[str], key: float) -> None:
    """Letters with names, one a line, then what the signs mean."""
    from matplotlib.patches import Rectangle

    height = figure.get_figheight()
    line, y = LINE / height, key / height
    for name, (sign, style) in marks.items():
        y -= line
        box = (0.02, y), 0.04, 0.85 * line
        figure.add_artist(
            Rectangle(*box, facecolor=style.color, transform=figure.transFigure)
        )
        middle = y + 0.43 * line
        text: dict[str, Any] = {"color": style.text, "weight": "bold", "ha": "center"}
        figure.text(0.04, middle, sign, va="center_baseline", fontsize=SIZE - 1, **text)
        figure.text(0.075, middle, name, va="center_baseline")
    for note in notes:
        y -= line
        figure.text(0.02, y + 0.43 * line, note, va="center_baseline", color=MUTED)

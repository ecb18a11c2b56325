"""The figures of a report, as SVG and PNG: metric over four axes, and who wins where.

A method has one color in all figures (Okabe and Ito's, which color-blind readers can
tell apart) and a dash of its own; its name stands at the end of its line.
"""

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from relaxjax.compare._summary import Row

MOST = 8
_COLORS = (
    "#000000",
    "#E69F00",
    "#0072B2",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#56B4E9",
    "#8C6D1F",
)
_DASHES = ("-", "--", "-.", ":")
Figures = dict[str, tuple[str, bytes]]


def figures(study: Mapping[str, Any], found: Sequence[Row]) -> Figures:
    """SVG text and PNG bytes of each figure, by its name.

    Args:
      study: what `study.json` holds.
      found: the rows of the report; the first eight that have run are drawn.
    """
    from matplotlib import rc_context

    drawn = [row for row in found if row.curve][:MOST]
    if not drawn:
        return {}
    made: Figures = {}
    with rc_context({"font.size": 11}):
        made["steps"] = _curves(study, drawn, "steps", lambda row: 1.0)
        made["bytes"] = _curves(
            study, drawn, "bytes sent by the busiest worker", _bytes, log=True
        )
        for network in study["networks"]:
            name = network["name"]
            label = f"predicted seconds at {name.replace(',', ' and ')}"
            made[f"seconds at {name}"] = _curves(
                study, drawn, label, _seconds(study, name), log=True
            )
        if any(row.steps_to_target for row in drawn):
            made["map"] = _map(study, drawn)
    return made


def _bytes(row: Row) -> float:
    return row.bytes_per_step or 0.0


def _seconds(study: Mapping[str, Any], network: str) -> Callable[[Row], float]:
    return lambda row: study["seconds"][row.method][network]


def _curves(
    study: Mapping[str, Any],
    drawn: Sequence[Row],
    label: str,
    unit: Callable[[Row], float],
    *,
    log: bool = False,
) -> tuple[str, bytes]:
    figure, axes = _axes()
    ends = []
    for i, row in enumerate(drawn):
        x, y = np.array(row.curve).T
        style = {"color": _COLORS[i], "linestyle": _DASHES[i % 4], "linewidth": 1.8}
        axes.plot(x * unit(row), y, **style)
        ends.append((x[-1] * unit(row), y[-1], row.method, _COLORS[i]))
    if log:
        axes.set_xscale("log")
    task = study["task"]
    if task["better"] == "lower" and min(y for row in drawn for _, y in row.curve) > 0:
        axes.set_yscale("log")
    axes.set_xlabel(label)
    axes.set_ylabel(f"validation {task['metric_name'].replace('_', ' ')}")
    _names(axes, ends)
    return _saved(figure)


def _names(axes: Any, ends: Sequence[tuple[float, float, str, str]]) -> None:
    """The names at the right edge, as high as their lines end, without overlaps."""
    to_share = axes.transAxes.inverted()
    heights = [to_share.transform(axes.transData.transform(e[:2]))[1] for e in ends]
    places = dict.fromkeys(np.argsort(heights), 0.0)
    lowest = -1.0
    for i in places:
        lowest = places[i] = max(heights[i], lowest + 0.065)
    over = max(0.0, lowest - 1.0)
    for i, (*_, name, color) in enumerate(ends):
        short = name if len(name) <= 30 else name[:29] + "\N{HORIZONTAL ELLIPSIS}"
        at = (1.02, places[np.intp(i)] - over)
        axes.annotate(short, at, xycoords="axes fraction", color=color, va="center")


def _map(study: Mapping[str, Any], drawn: Sequence[Row]) -> tuple[str, bytes]:
    """The method that is predicted to reach the target first, over the networks."""
    grid = study["map"]
    reach = [row for row in drawn if row.steps_to_target]
    times = np.array(
        [np.array(grid["seconds"][r.method]) * (r.steps_to_target or 0) for r in reach]
    )
    winner = times.argmin(axis=0)
    figure, axes = _axes()
    from matplotlib.colors import ListedColormap, to_rgb

    mine = [_COLORS[drawn.index(row)] for row in reach]
    pale = [tuple(0.55 + 0.45 * c for c in to_rgb(color)) for color in mine]
    axes.imshow(
        winner,
        cmap=ListedColormap(pale),
        vmin=-0.5,
        vmax=len(reach) - 0.5,
        aspect="auto",
        origin="lower",
    )
    for (y, x), i in np.ndenumerate(winner):
        text = (
            f"{chr(ord('A') + drawn.index(reach[i]))}\n{_time(float(times[i, y, x]))}"
        )
        axes.text(x, y, text, ha="center", va="center", fontsize=9)
    axes.set_xticks(range(len(grid["gbps"])), [f"{x:g}" for x in grid["gbps"]])
    axes.set_yticks(
        range(len(grid["latency_ms"])), [f"{x:g}" for x in grid["latency_ms"]]
    )
    axes.set_xlabel("bandwidth, Gbit/s")
    axes.set_ylabel("latency, ms")
    for i, row in enumerate(drawn):
        note = "" if row in reach else ": not reached"
        text = f"{chr(ord('A') + i)}  {row.method}{note}"
        axes.annotate(
            text, (1.02, 0.97 - 0.075 * i), xycoords="axes fraction", color=_COLORS[i]
        )
    return _saved(figure)


def _time(seconds: float) -> str:
    for unit, size in (("h", 3600.0), ("min", 60.0), ("s", 1.0)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{1e3 * seconds:.3g} ms"


def _axes() -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 3.9))
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.1, 0.15, 0.56, 0.8))
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _saved(figure: Any) -> tuple[str, bytes]:
    from matplotlib import rc_context

    svg, png = io.StringIO(), io.BytesIO()
    salt = figure.axes[0].get_xlabel()  # so that no two figures of a page share ids
    with rc_context({"svg.hashsalt": salt}):
        none = {"Date": None}
        figure.savefig(svg, format="svg", bbox_inches="tight", metadata=none)
    figure.savefig(png, format="png", bbox_inches="tight", dpi=150)
    text = svg.getvalue()
    return text[text.index("<svg") :], png.getvalue()

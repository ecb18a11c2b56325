"""Gantt charts of spans: a color for each kind of work, a number for each transfer.

Source of the colors: Okabe and Ito, "Color Universal Design", 2008, the last one in a
lighter tint; readers who see no red or no green can tell them apart. Numbers and white
lines part what is of one kind.

Cost: O(spans log spans).
"""

from collections.abc import Iterator, Sequence
from os import PathLike
from typing import Any, NamedTuple

from relaxjax._core._tree import natural_key
from relaxjax._core.foreign._extra import extra
from relaxjax.schedule.simulator._engine import Span

_ROWS = 40
"""The most tracks that a chart shows."""
_KEYS, _NAME = 30, 24
"""The most transfers that the key beside a chart names, and letters of a name."""
_KINDS = {
    "pull": ("pull parameters", "#0072B2", "white"),
    "compute": ("compute", "#E69F00", "black"),
    "push": ("push gradients", "#009E73", "black"),
    "network": ("collective", "#E0A3C8", "black"),
}
"""What a kind is called, its color, and that of letters on it."""
_UNITS = {1.0: "seconds", 1e-3: "milliseconds", 1e-6: "microseconds"}
_INCHES, _LETTER = 6.0, 0.08
"""The width of the tracks, and of a letter in a bar."""


class Bar(NamedTuple):
    """Something that occupies a track.

    Attributes:
      track: the track's name.
      kind: a key of the colors.
      name: the name of the operation or of the parameter.
      start: in the unit of the chart.
      end: in the unit of the chart.
      moves: whether it is a transfer.
    """

    track: str
    kind: str
    name: str
    start: float
    end: float
    moves: bool


def unit_of(seconds: float) -> tuple[float, str]:
    """The largest unit of which a duration has one at least: its seconds and name."""
    found = [unit for unit in _UNITS if seconds >= unit]
    unit = max(found, default=min(_UNITS))
    return unit, _UNITS[unit]


def bars_of(spans: Sequence[Span], unit: float) -> list[Bar]:
    """The bars of a chart; pieces of one transfer in a row are one bar."""
    bars: list[Bar] = []
    last: dict[str, int] = {}
    for span in sorted(spans, key=lambda span: span.start):
        times = span.start / unit, span.end / unit
        kind, name = _kind(span.track), _parameter(span)
        bar = Bar(span.track, kind, name, *times, bool(span.nbytes))
        index = last.get(bar.track)
        before = None if index is None else bars[index]
        gap = 1e-6 * (bar.end - bar.start)
        if before and before.name == bar.name and bar.start - before.end <= gap:
            bars[last[bar.track]] = before._replace(end=bar.end)
            continue
        last[bar.track] = len(bars)
        bars.append(bar)
    return bars


def _kind(track: str) -> str:
    """A worker's link in, and a server's link out, carry pulls."""
    if "compute" in track:
        return "compute"
    who, _, way = track.rpartition(" ")
    if way not in ("in", "out"):
        return "network"
    return "pull" if who.startswith("worker") == (way == "in") else "push"


def _parameter(span: Span) -> str:
    """The name of the parameter that is pushed, reduced or gathered."""
    what, _, name = span.name.partition(" ")
    return name if what in ("push", "reduce", "gather") and span.nbytes else span.name


def numbers_of(bars: Sequence[Bar]) -> dict[str, int]:
    """Numbers of transfers, from 1, in the order in which they begin."""
    names = dict.fromkeys(bar.name for bar in bars if bar.moves)
    return {name: number for number, name in enumerate(names, start=1)}


def draw_gantt(path: str | PathLike[str], title: str, spans: Sequence[Span]) -> None:
    """Writes a PNG with one row per track, at most 40, a legend and a key."""
    with extra("drawing a timeline needs"):
        from matplotlib.figure import Figure
    end = max((span.end for span in spans), default=0.0)
    unit, word = unit_of(end)
    bars = bars_of(spans, unit)
    tracks = sorted({bar.track for bar in bars}, key=natural_key)
    numbers = numbers_of(bars)
    lines = list(_key(spans, numbers))
    height = max(1.6 + 0.42 * min(len(tracks), _ROWS), 0.9 + 0.2 * len(lines))
    figure = Figure(figsize=(_INCHES + 3.8, height), layout="constrained")
    axes, key = figure.subplots(1, 2, width_ratios=(_INCHES, 2.4))
    _draw_bars(axes, bars, tracks[:_ROWS], numbers, end / unit)
    axes.set_xlabel(word)
    hidden = len(tracks) - _ROWS
    more = f" (the first {_ROWS} of {len(tracks)} tracks)" if hidden > 0 else ""
    figure.suptitle(f"{title}: {end / unit:.4g} {word}{more}")
    key.set_axis_off()
    text = {"va": "top", "family": "monospace", "fontsize": 9}
    key.text(0, 1, "\n".join(lines), transform=key.transAxes, **text)
    figure.savefig(path, dpi=150, format="png")


def _draw_bars(
    axes: Any,
    bars: Sequence[Bar],
    tracks: list[str],
    numbers: dict[str, int],
    end: float,
) -> None:
    from matplotlib.patches import Patch

    inch = end / _INCHES or 1.0
    places: dict[tuple[str, bool], list[tuple[float, float]]] = {}
    for bar in bars:
        width = bar.end - bar.start
        room = width / inch / _LETTER
        places.setdefault((bar.track, room >= 1), []).append((bar.start, width))
        label = _label(bar, numbers.get(bar.name), room)
        if label and bar.track in tracks:
            middle = bar.start + width / 2, tracks.index(bar.track)
            ink = _KINDS[bar.kind][2]
            place = {"fontsize": 9, "ha": "center", "va": "center"}
            axes.text(*middle, label, color=ink, **place)
    for (track, wide), where in places.items():
        if track in tracks:
            row = tracks.index(track) - 0.4, 0.8
            color = _KINDS[_kind(track)][1]
            edge = {"edgecolor": "white", "linewidth": 0.8 if wide else 0.0}
            axes.broken_barh(where, row, facecolor=color, **edge)
    axes.set_yticks(range(len(tracks)), tracks)
    axes.invert_yaxis()
    axes.set_xlim(0, end or None)
    axes.spines[["top", "right"]].set_visible(False)
    shown = {bar.kind for bar in bars}
    kinds = [words for kind, words in _KINDS.items() if kind in shown]
    patches = [Patch(color=color, label=label) for label, color, _ in kinds]
    place = {"loc": "lower left", "bbox_to_anchor": (0, 1), "frameon": False}
    axes.legend(handles=patches, ncols=len(patches), **place)


def _label(bar: Bar, number: int | None, room: float) -> str:
    """What fits into a bar: number and name, or the number, or nothing."""
    choices = [f"{number}  {bar.name}", str(number)] if number else [bar.name]
    return next((text for text in choices if len(text) + 0.5 <= room), "")


def _key(spans: Sequence[Span], numbers: dict[str, int]) -> Iterator[str]:
    """The transfers, by number, with the bytes that one worker's link carries."""
    if not numbers:
        return
    nbytes: dict[tuple[str, str, int, int], float] = {}
    for span in spans:  # computation may have the name of a transfer, as its scope
        place = _parameter(span), span.track, span.worker, span.step
        if span.nbytes:
            nbytes[place] = nbytes.get(place, 0.0) + span.nbytes
    sizes = {name: total for (name, *_), total in reversed(nbytes.items())}
    yield "Transfers, in their order:"
    for name, number in list(numbers.items())[:_KEYS]:
        short = name if len(name) <= _NAME else f"..{name[2 - _NAME :]}"
        yield f"{number:>3} {short}  {_bytes(sizes[name])}"
    if len(numbers) > _KEYS:
        yield f"    and {len(numbers) - _KEYS} more"


def _bytes(number: float) -> str:
    power = max((p for p in (0, 3, 6, 9) if number >= 10**p), default=0)
    return f"{number / 10**power:.3g} {'kMG'[power // 3 - 1] if power else ''}B"

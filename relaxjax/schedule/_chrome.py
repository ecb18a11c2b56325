"""Charts of spans: Chrome's trace event format, as Perfetto reads it, and Gantt charts.

Source: "Trace Event Format", the Chromium project. Each track is a thread of one
process, named and placed by metadata events (`ph` "M"); each span is a complete event
(`ph` "X") with microseconds in `ts` and `dur`. Begin and end are rounded to whole
nanoseconds, as viewers read them, so that spans in a row do not seem to overlap.

Cost: O(spans log spans).
"""

from collections.abc import Sequence
from os import PathLike
from typing import Any

from relaxjax._core._tree import natural_key
from relaxjax.schedule._engine import Span

_ROWS = 40
"""The most tracks that a Gantt chart shows."""


def chrome_trace(timelines: Sequence[tuple[str, Sequence[Span]]]) -> dict[str, Any]:
    """The trace as a JSON object; each (name, spans) becomes a process in the viewer.

    The events of a process are sorted by time. Transfers carry their bytes, and every
    event its place among the names on its track in its step.
    """
    events: list[dict[str, Any]] = []
    for process, (name, spans) in enumerate(timelines, start=1):
        events += _process_events(process, name, spans)
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _process_events(
    process: int, name: str, spans: Sequence[Span]
) -> list[dict[str, Any]]:
    tracks = sorted({span.track for span in spans}, key=natural_key)
    thread = {track: i + 1 for i, track in enumerate(tracks)}
    events = [_metadata("process_name", process, 0, name=name)]
    for track, tid in thread.items():
        events.append(_metadata("thread_name", process, tid, name=track))
        events.append(_metadata("thread_sort_index", process, tid, sort_index=tid))
    order: dict[tuple[str, int], dict[str, int]] = {}
    for span in sorted(spans, key=lambda s: (s.start, thread[s.track])):
        before = order.setdefault((span.track, span.step), {})
        place = before.setdefault(span.name, len(before))
        details = {"step": span.step, "order": place}
        if span.nbytes:
            details["bytes"] = round(span.nbytes)
        events.append(_complete(span, process, thread[span.track], details))
    return events


def _metadata(kind: str, process: int, thread: int, **args: Any) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": args}


def _complete(
    span: Span, process: int, thread: int, details: dict[str, Any]
) -> dict[str, Any]:
    begin, end = round(span.start * 1e9), round(span.end * 1e9)
    return {
        "name": span.name,
        "cat": "transfer" if span.nbytes else "compute",
        "ph": "X",
        "ts": begin / 1000,
        "dur": (end - begin) / 1000,
        "pid": process,
        "tid": thread,
        "args": details,
    }


def draw_gantt(path: str | PathLike[str], title: str, spans: Sequence[Span]) -> None:
    """Writes a PNG with one row per track, at most 40, and a color for each name."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            'drawing a timeline needs matplotlib: pip install "relaxjax[cli]"'
        ) from error
    tracks = sorted({span.track for span in spans}, key=natural_key)[:_ROWS]
    names = dict.fromkeys(span.name for span in spans)
    color = {name: f"C{i % 10}" for i, name in enumerate(names)}
    figure = Figure(figsize=(11, 1.2 + 0.35 * len(tracks)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for row, track in enumerate(tracks):
        bars = [span for span in spans if span.track == track]
        axes.broken_barh(
            [(span.start, span.end - span.start) for span in bars],
            (row - 0.4, 0.8),
            facecolors=[color[span.name] for span in bars],
            edgecolor="white",
            linewidth=0.3,
        )
    axes.set_yticks(range(len(tracks)), tracks)
    axes.invert_yaxis()
    axes.set_xlabel("seconds")
    axes.set_title(title)
    figure.savefig(path, dpi=120, format="png")

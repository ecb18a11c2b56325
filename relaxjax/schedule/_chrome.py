"""Chrome's trace event format, as Perfetto reads it.

Source: "Trace Event Format", the Chromium project. Each track is a thread of one
process, named and placed by metadata events (`ph` "M"); each span is a complete event
(`ph` "X") with microseconds in `ts` and `dur`. Begin and end are rounded to whole
nanoseconds, as viewers read them, so that spans in a row do not seem to overlap.

Cost: O(spans log spans).

A Gantt chart of a timeline: one row per track, colors by name.

Cost: O(spans).
"""

import json
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from relaxjax._core._tree import natural_key
from relaxjax.schedule._engine import Span


def chrome_trace(timelines: Sequence[tuple[str, Sequence[Span]]]) -> dict[str, Any]:
    """The trace as a JSON object.

    Args:
        timelines: names and spans; each becomes a process in the viewer.

    Returns:
        `traceEvents`, sorted by time in each process; transfers carry their bytes, and
        every event its place among the names on its track in its step.
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
    events = [_told("process_name", process, 0, name=name)]
    for track, number in thread.items():
        events.append(_told("thread_name", process, number, name=track))
        events.append(_told("thread_sort_index", process, number, sort_index=number))
    order: dict[tuple[str, int], dict[str, int]] = {}
    for span in sorted(spans, key=lambda s: (s.start, thread[s.track])):
        before = order.setdefault((span.track, span.step), {})
        place = before.setdefault(span.name, len(before))
        details = {"step": span.step, "order": place}
        if span.nbytes:
            details["bytes"] = round(span.nbytes)
        events.append(_complete(span, process, thread[span.track], details))
    return events


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


def write_json(path: str | PathLike[str], trace: dict[str, Any]) -> None:
    """Writes a trace.

    Args:
        path: of a JSON file.
        trace: from `chrome_trace`.
    """
    Path(path).write_text(json.dumps(trace))


def _told(what: str, process: int, thread: int, **args: Any) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": process, "tid": thread, "args": args}


_ROWS = 40


def draw_gantt(path: str | PathLike[str], name: str, spans: Sequence[Span]) -> None:
    """Writes a PNG; of more than 40 tracks the first 40.

    Args:
        path: of the file.
        name: the title.
        spans: of the timeline.

    Raises:
        ImportError: matplotlib is missing.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            'drawing a timeline needs matplotlib: pip install "relaxjax[cli]"'
        ) from error
    tracks = sorted({span.track for span in spans}, key=natural_key)[:_ROWS]
    row = {track: i for i, track in enumerate(tracks)}
    color = {
        n: f"C{i % 10}" for i, n in enumerate(dict.fromkeys(s.name for s in spans))
    }
    figure = Figure(figsize=(11, 1.2 + 0.35 * len(tracks)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for track in tracks:
        own = [span for span in spans if span.track == track]
        axes.broken_barh(
            [(span.start, span.end - span.start) for span in own],
            (row[track] - 0.4, 0.8),
            facecolors=[color[span.name] for span in own],
            edgecolor="white",
            linewidth=0.3,
        )
    axes.set_yticks(range(len(tracks)), tracks)
    axes.invert_yaxis()
    axes.set_xlabel("seconds")
    axes.set_title(name)
    figure.savefig(path, dpi=120, format="png")

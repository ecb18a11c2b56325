"""Chrome's trace event format, as Perfetto reads it.

Source: "Trace Event Format", the Chromium project. Each track is a thread of one
process, named by metadata events (`ph` "M"); each span is a complete event (`ph` "X")
with microseconds in `ts` and `dur`.

Cost: O(spans log spans).
"""

import json
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from relaxjax.schedule._engine import Span
from relaxjax.schedule._names import natural_key


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
    events = [_named("process_name", process, 0, name)]
    events += [_named("thread_name", process, thread[t], t) for t in tracks]
    order: dict[tuple[str, int], dict[str, int]] = {}
    for span in sorted(spans, key=lambda s: (s.start, thread[s.track])):
        before = order.setdefault((span.track, span.step), {})
        place = before.setdefault(span.name, len(before))
        details = {"step": span.step, "order": place}
        if span.nbytes:
            details["bytes"] = round(span.nbytes)
        events.append(
            {
                "name": span.name,
                "cat": "transfer" if span.nbytes else "compute",
                "ph": "X",
                "ts": span.start * 1e6,
                "dur": (span.end - span.start) * 1e6,
                "pid": process,
                "tid": thread[span.track],
                "args": details,
            }
        )
    return events


def write_json(path: str | PathLike[str], trace: dict[str, Any]) -> None:
    """Writes a trace.

    Args:
        path: of a JSON file.
        trace: from `chrome_trace`.
    """
    Path(path).write_text(json.dumps(trace))


def _named(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    place = {"pid": process, "tid": thread}
    return {"name": what, "ph": "M", **place, "args": {"name": name}}

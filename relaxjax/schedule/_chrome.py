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


def chrome_trace(name: str, spans: Sequence[Span]) -> dict[str, Any]:
    """The trace as a JSON object.

    Args:
        name: of the process in the viewer.
        spans: of the timeline.

    Returns:
        `traceEvents`, sorted by time; transfers carry their bytes, and every event its
        place in the order of its track and step.
    """
    tracks = sorted({span.track for span in spans}, key=natural_key)
    thread = {track: i + 1 for i, track in enumerate(tracks)}
    events: list[dict[str, Any]] = [_named("process_name", 0, name)]
    events += [_named("thread_name", thread[t], t) for t in tracks]
    order: dict[tuple[str, int], int] = {}
    for span in sorted(spans, key=lambda s: (s.start, thread[s.track])):
        place = order[span.track, span.step] = (
            order.get((span.track, span.step), -1) + 1
        )
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
                "pid": 1,
                "tid": thread[span.track],
                "args": details,
            }
        )
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def write_json(path: str | PathLike[str], trace: dict[str, Any]) -> None:
    """Writes a trace.

    Args:
        path: of a JSON file.
        trace: from `chrome_trace`.
    """
    Path(path).write_text(json.dumps(trace))


def _named(what: str, thread: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": 1, "tid": thread, "args": {"name": name}}

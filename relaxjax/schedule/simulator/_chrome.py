"""Spans in Chrome's trace event format, as Perfetto reads it.

Source: "Trace Event Format", the Chromium project. Each track is a thread of one
process, named and placed by metadata events (`ph` "M"); each span is a complete event
(`ph` "X") with microseconds in `ts` and `dur`. Begin and end are rounded to whole
nanoseconds, as viewers read them, so that spans in a row do not seem to overlap. A
message that has a span at its sender and one at its receiver is a flow of its name, an
arrow in the viewer (`ph` "s" and "f").

Cost: O(spans log spans).
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from relaxjax._core._tree import natural_key
from relaxjax.schedule.simulator._engine import Span


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
    return [*events, *_flows(process, spans, thread)]


def _flows(
    process: int, spans: Sequence[Span], thread: dict[str, int]
) -> Iterator[dict[str, Any]]:
    """From a message's span at its sender to the one at its receiver, both in order."""
    sides: dict[tuple[str, int], dict[str, list[Span]]] = {}
    for span in sorted(spans, key=lambda span: span.start):
        if span.nbytes:
            both = sides.setdefault((span.name, span.step), defaultdict(list))
            both[span.track.rpartition(" ")[2]].append(span)
    each = (zip(x["out"], x["in"], strict=False) for x in sides.values())
    for number, pair in enumerate(chain.from_iterable(each), process << 32):
        for phase, span in zip("sf", pair, strict=True):
            event = _complete(span, process, thread[span.track], {})
            del event["dur"], event["args"]
            yield event | {"ph": phase, "id": number, "bp": "e"}


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

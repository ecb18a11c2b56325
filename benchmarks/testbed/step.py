"""What a step took and returned, also in the form of a timeline.

Cost: O(events).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from benchmarks.testbed.records import Work
from relaxjax.schedule import Span, Timeline
from relaxjax.schedule.simulator._timeline import TraceClock


class Step(NamedTuple):
    """A step of all workers.

    Attributes:
      workers: what each worker did.
      result: the mean loss of training, the output rows of all workers of inference, or
        the leaves of a pull by name.
    """

    workers: tuple[Work, ...]
    result: Any

    @property
    def seconds(self) -> float:
        """Seconds from the first worker's begin to the last one's end."""
        began = min(work.began for work in self.workers)
        return max(work.began + work.seconds for work in self.workers) - began

    @property
    def straggler_effect(self) -> float:
        """The fastest worker's wait over the slowest one's step: (max - min) / max."""
        seconds = [work.seconds for work in self.workers]
        return (max(seconds) - min(seconds)) / max(seconds)

    @property
    def orders(self) -> tuple[tuple[str, ...], ...]:
        """For each worker, the leaves in the order in which they arrived."""
        return tuple(tuple(e.name for e in work.arrivals) for work in self.workers)


def timeline(name: str, steps: Sequence[Step], nbytes: dict[str, int]) -> Timeline:
    """Steps in the form of a simulated run, to be drawn or saved beside one.

    Args:
      name: name of the run.
      steps: the steps, in order.
      nbytes: bytes of each leaf, as in `LayerModel.nbytes`.

    Returns:
      Tracks "worker 0 in", "worker 0 compute", "worker 0 out" and so on.
    """
    clock, spans = TraceClock(len(steps[0].workers)), []
    zero = min(work.began for work in steps[0].workers)
    for number, step in enumerate(steps):
        for index, work in enumerate(step.workers):
            begin = work.began - zero
            clock.begin(index, begin)
            clock.end(index, begin + work.seconds)
            for track, events, prefix in (
                ("in", work.arrivals, ""),
                ("compute", work.operations, ""),
                ("out", work.pushes, "push "),
            ):
                spans += [
                    Span(
                        f"worker {index} {track}",
                        prefix + event.name,
                        begin + event.start,
                        begin + event.end,
                        0 if track == "compute" else nbytes[event.name],
                        index,
                        number,
                    )
                    for event in events
                ]
    return Timeline(name, sorted(spans, key=lambda span: span.start), clock)

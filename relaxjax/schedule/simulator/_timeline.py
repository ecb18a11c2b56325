"""What happened when: spans on tracks, and what can be read from them.

Cost: O(spans).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike

from relaxjax._core.foreign._folders import local_path, write_whole
from relaxjax.schedule.simulator._chrome import chrome_trace
from relaxjax.schedule.simulator._engine import Span
from relaxjax.schedule.simulator._gantt import draw_gantt


@dataclass
class TraceClock:
    """When each worker began and ended each of its steps.

    Attributes:
      workers: number of workers.
      begins: for each worker, seconds by step.
      ends: for each worker, seconds by step.
    """

    workers: int
    begins: list[list[float]] = field(init=False)
    ends: list[list[float]] = field(init=False)

    def __post_init__(self) -> None:
        """Makes a row for each worker."""
        self.begins = [[] for _ in range(self.workers)]
        self.ends = [[] for _ in range(self.workers)]

    def begin(self, worker: int, now: float) -> None:
        """Notes that a worker, by its index, begins a step at `now` seconds."""
        self.begins[worker].append(now)

    def end(self, worker: int, now: float) -> None:
        """Notes that a worker, by its index, ends a step at `now` seconds."""
        self.ends[worker].append(now)


@dataclass(frozen=True)
class Timeline:
    """A simulated or recorded run.

    Attributes:
      name: the name of the policy or the run.
      spans: every occupation of a track, in the order in which they started.
      clock: when workers began and ended their steps.
      weights: the number of workers that each simulated one stands for.

    Example:
      >>> from relaxjax.schedule import Graph, simulate
      >>> graph = Graph(recvs={"w": 1.0}, ops={"dot": (3.0, ["w"])})
      >>> round(simulate(graph).seconds, 6)
      4.0
    """

    name: str
    spans: Sequence[Span]
    clock: TraceClock
    weights: Sequence[int] = ()

    @property
    def tracks(self) -> list[str]:
        """Names of the tracks, in order of first use."""
        return list(dict.fromkeys(span.track for span in self.spans))

    @property
    def seconds(self) -> float:
        """From the beginning to the end of the last span."""
        if not self.spans:
            return 0.0
        first = min(span.start for span in self.spans)
        return max(span.end for span in self.spans) - min(first, 0.0)

    def busy(self, track: str) -> float:
        """Seconds during which a track was occupied, by one span or several.

        Args:
          track: the name of the track. If nothing ran on it, the result is 0.
        """
        return _covered([span for span in self.spans if span.track == track])

    def utilization(self) -> dict[str, float]:
        """Share of the time during which each track was occupied."""
        spans: dict[str, list[Span]] = {}
        for span in self.spans:
            spans.setdefault(span.track, []).append(span)
        whole = self.seconds
        return {track: _covered(on) / whole for track, on in spans.items() if whole}

    def exposed(self, worker: int = 0) -> float:
        """Exposed communication: seconds during which a worker's computing unit waits.

        Args:
          worker: the index of the worker.

        Raises:
          ValueError: no such worker.
        """
        self._check_worker(worker)
        track = f"worker {worker} compute"
        lanes = [s for s in self.spans if f"{s.track} ".startswith(f"{track} ")]
        return self.seconds - _covered(lanes)

    def _check_worker(self, worker: int) -> None:
        if not 0 <= worker < self.clock.workers:
            last = self.clock.workers - 1
            raise ValueError(f"worker must be one of 0 to {last}, got {worker}")

    def step_times(self) -> list[list[float]]:
        """Seconds of each step: one list per step, one number per simulated worker."""
        rows = zip(self.clock.begins, self.clock.ends, strict=True)
        durations = [[e - b for b, e in zip(*row, strict=True)] for row in rows]
        return [list(step) for step in zip(*durations, strict=True)]

    def seconds_per_step(self) -> float:
        """Mean time between the ends of steps (of the slowest worker)."""
        ends = [max(step) for step in zip(*self.clock.ends, strict=True)]
        return ends[-1] / len(ends) if ends else 0.0

    def straggler_effect(self) -> float:
        """Share of a step that the fastest worker waits for the slowest, on average.

        This is (max t - min t) / max t over the workers' times t of a step.
        """
        effects = [(max(t) - min(t)) / max(t) for t in self.step_times() if max(t) > 0]
        return sum(effects) / len(effects) if effects else 0.0

    def transfers(self, worker: int = 0, step: int = 0) -> list[str]:
        """Parameters in the order in which a worker received them.

        Args:
          worker: the index of the worker.
          step: the index of the step.

        Raises:
          ValueError: no such worker or step.
        """
        self._check_worker(worker)
        steps = len(self.clock.begins[worker])
        if not 0 <= step < steps:
            raise ValueError(f"step must be one of 0 to {steps - 1}, got {step}")
        spans = [
            s for s in self.spans if s.track == f"worker {worker} in" and s.step == step
        ]
        ordered = sorted(spans, key=lambda s: s.end)
        return list(dict.fromkeys(s.name for s in ordered))

    def save(
        self, path: str | PathLike[str], *, beside: Sequence["Timeline"] = ()
    ) -> None:
        """Writes the Chrome trace format: opens in Perfetto and chrome://tracing.

        Args:
          path: the JSON file.
          beside: further timelines, such as a measured one beside a predicted one.
        """
        trace = chrome_trace([(t.name, t.spans) for t in (self, *beside)])
        write_whole(local_path("save", "path", path), json.dumps(trace))

    def save_png(self, path: str | PathLike[str]) -> None:
        """Draws the tracks over time (a Gantt chart).

        Colors tell pulls, computation, pushes and collectives; transfers have numbers,
        in the order in which they begin, and a key.

        Args:
          path: the PNG file.

        Raises:
          ImportError: matplotlib is missing; the message names the extra.
        """
        draw_gantt(local_path("save_png", "path", path), self.name, self.spans)


def _covered(spans: Sequence[Span]) -> float:
    """Length of the union of spans."""
    total, reached = 0.0, float("-inf")
    for span in sorted(spans, key=lambda s: s.start):
        total += max(0.0, span.end - max(span.start, reached))
        reached = max(reached, span.end)
    return total

"""What happened when: spans on tracks, and what can be read from them.

Cost: O(spans).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike

from relaxjax.schedule._chrome import chrome_trace, write_json
from relaxjax.schedule._engine import Span
from relaxjax.schedule._gantt import draw_gantt


@dataclass
class Clock:
    """When each worker began and ended each of its steps.

    Attributes:
        workers: how many.
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
        """Notes that a worker's step begins.

        Args:
            worker: its index.
            now: seconds.
        """
        self.begins[worker].append(now)

    def end(self, worker: int, now: float) -> None:
        """Notes that a worker's step ends.

        Args:
            worker: its index.
            now: seconds.
        """
        self.ends[worker].append(now)


@dataclass(frozen=True)
class Timeline:
    """A simulated or recorded run.

    Attributes:
        name: of the policy or the run.
        spans: every occupation of a track, in the order in which they started.
        clock: when workers began and ended their steps.
        weights: how many workers each simulated one stands for.

    Example:
        >>> from relaxjax.schedule import Graph, simulate
        >>> graph = Graph(recvs={"w": 1.0}, ops={"dot": (3.0, ["w"])})
        >>> round(simulate(graph).seconds, 6)
        4.0
    """

    name: str
    spans: Sequence[Span]
    clock: Clock
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
        """Seconds during which a track was occupied.

        Args:
            track: its name.
        """
        return sum(s.end - s.start for s in self.spans if s.track == track)

    def utilization(self) -> dict[str, float]:
        """Share of the time during which each track was occupied."""
        busy = dict.fromkeys(self.tracks, 0.0)
        for span in self.spans:
            busy[span.track] += span.end - span.start
        return {track: t / self.seconds for track, t in busy.items() if self.seconds}

    def exposed(self, worker: int = 0) -> float:
        """Exposed communication: seconds in which a worker's computing unit waits.

        Args:
            worker: its index.
        """
        return self.seconds - self.busy(f"worker {worker} compute")

    def step_times(self) -> list[list[float]]:
        """For each step the seconds that each worker took.

        Returns:
            One list per step, one number per simulated worker.
        """
        rows = zip(self.clock.begins, self.clock.ends, strict=True)
        durations = [[e - b for b, e in zip(*row, strict=True)] for row in rows]
        return [list(step) for step in zip(*durations, strict=True)]

    def seconds_per_step(self) -> float:
        """Mean time between the ends of steps (of the slowest worker)."""
        ends = [max(step) for step in zip(*self.clock.ends, strict=True)]
        return ends[-1] / len(ends) if ends else 0.0

    def straggler_effect(self) -> float:
        """Share of a step that the fastest worker waits for the slowest, on average.

        (max t - min t) / max t over the workers' times of a step.
        """
        effects = [(max(t) - min(t)) / max(t) for t in self.step_times() if max(t) > 0]
        return sum(effects) / len(effects) if effects else 0.0

    def transfers(self, worker: int = 0, step: int = 0) -> list[str]:
        """Parameters in the order in which a worker received them.

        Args:
            worker: its index.
            step: index of the step.
        """
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
            path: of a JSON file.
            beside: further timelines, as a measured one beside a predicted one.
        """
        write_json(path, chrome_trace([(t.name, t.spans) for t in (self, *beside)]))

    def save_png(self, path: str | PathLike[str]) -> None:
        """Draws the tracks over time (a Gantt chart).

        Args:
            path: of a PNG file.

        Raises:
            ImportError: matplotlib is missing; the message names the extra.
        """
        draw_gantt(path, self.name, self.spans)

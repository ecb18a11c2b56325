"""A discrete-event engine: jobs on tracks.

A track (a computing unit, one direction of a link) serves one job at a time, the
ready one with the smallest priority number, then the one that was ready first, then the
one with the smallest place. A job that has started is not interrupted: messages are
preempted where they are sliced.

At one instant everything that ends, ends first; then every idle track chooses. What
takes 0 seconds ends at the same instant, and the tracks choose again.

A message occupies its sender's track and, cut through, its receiver's: in one piece,
first come, first served. It comes when the receiver, at its own rate, would not run dry
before the last byte is sent: at once if the receiver is the slower one, else so that
both end together.

A window (ByteScheduler's credit) stands before the track: it admits the most urgent
message as long as its credit is positive, and gets the bytes back when the message has
arrived, one latency later. What it has admitted is served first in, first out, several
windows before one track in turns, by bytes.

Cost: O(J log J) for J jobs.
"""

import heapq
import itertools
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import NamedTuple


class Span(NamedTuple):
    """One occupation of a track.

    Attributes:
      track: the track's name.
      name: the name of the operation or transfer.
      start: seconds.
      end: seconds.
      nbytes: bytes of a transfer, else 0.
      worker: index of the worker it belongs to.
      step: index of the step.
    """

    track: str
    name: str
    start: float
    end: float
    nbytes: float
    worker: int
    step: int


@dataclass(slots=True, eq=False)
class Track:
    """A resource that serves one job at a time."""

    name: str
    ready: "Queue" = field(default_factory=list)
    idle: bool = True


@dataclass(slots=True, eq=False)
class Window:
    """How much one worker may have under way in one direction."""

    credit: float  # bytes left; may fall below zero by one message
    latency: float  # seconds until a credit comes back
    ready: "Queue" = field(default_factory=list)
    admitted: float = 0.0  # bytes so far


@dataclass(slots=True, eq=False)
class SimulatedJob:
    """Something that takes time, or a gate, which has no track and takes no time."""

    track: Track | None
    name: str
    seconds: float = 0.0  # on its track
    _: KW_ONLY
    priority: float = 0.0  # the lower, the sooner
    place: tuple[int, ...] = ()  # settles ties: the lower, the sooner
    nbytes: float = 0
    worker: int = 0
    step: int = 0
    receiver: Track | None = None  # the track at the other end of a message
    receiving: float = 0.0  # seconds on that track
    window: Window | None = None  # admits it to its track
    waiting: int = 0  # needs that are not met yet
    users: list["SimulatedJob"] = field(default_factory=list)  # jobs that need it
    then: Callable[[], None] | None = None  # called when it is done

    def need(self, other: "SimulatedJob") -> None:
        """Makes this job wait for another that is not done yet."""
        self.waiting += 1
        other.users.append(self)


Queue = list[tuple[float, float, tuple[int, ...], int, SimulatedJob]]
"""A heap of jobs by priority, then by the instant of arrival, then by place."""


class Engine:
    """Runs jobs in simulated time.

    Attributes:
      now: seconds since the start.
      spans: what has run so far.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.spans: list[Span] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._dirty: dict[Track, None] = {}
        self._admitting: dict[Window, None] = {}

    def count_down(self, job: SimulatedJob) -> None:
        """Counts one need of a job as met; after the last one the job may run."""
        job.waiting -= 1
        if not job.waiting:
            self._release(job)

    def run(self) -> None:
        """Runs until nothing is left to do."""
        while self._admitting or self._dirty or self._events:
            # Whatever happens at one instant happens before any track chooses.
            while self._admitting:
                self._admit(self._admitting.popitem()[0])
            while self._dirty:
                track = self._dirty.popitem()[0]
                if track.idle and track.ready:
                    self._start(track, heapq.heappop(track.ready)[-1])
            if not self._events:
                return
            self.now = self._events[0][0]
            while self._events and self._events[0][0] == self.now:
                heapq.heappop(self._events)[2]()

    def _release(self, job: SimulatedJob) -> None:
        if job.track is None:
            self._finish(job)
        elif job.window is None:
            self._queue(job.track, job, job.priority)
        else:
            self._push(job.window.ready, job, job.priority)
            self._admitting[job.window] = None

    def _queue(self, track: Track, job: SimulatedJob, priority: float) -> None:
        self._push(track.ready, job, priority)
        self._dirty[track] = None

    def _push(self, queue: Queue, job: SimulatedJob, priority: float) -> None:
        heapq.heappush(queue, (priority, self.now, job.place, next(self._count), job))

    def _admit(self, window: Window) -> None:
        while window.ready and window.credit > 0:
            job = heapq.heappop(window.ready)[-1]
            assert job.track is not None
            self._queue(job.track, job, window.admitted)
            window.credit -= job.nbytes
            window.admitted += job.nbytes

    def _start(self, track: Track, job: SimulatedJob) -> None:
        """Begins a job, or the half of a message that is on this track."""
        track.idle = False
        receiver = None if track is job.receiver else job.receiver
        seconds = job.receiving if track is job.receiver else job.seconds
        end = self.now + seconds
        self.spans.append(
            Span(track.name, job.name, self.now, end, job.nbytes, job.worker, job.step)
        )
        self._at(end, lambda: self._vacate(track))
        if receiver is not None:
            comes = self.now + max(0.0, seconds - job.receiving)
            self._at(comes, lambda: self._queue(receiver, job, 0.0))
            return
        self._at(end, lambda: self._finish(job))
        if (window := job.window) is not None:
            returned = end + window.latency
            self._at(returned, lambda: self._give_back(window, job.nbytes))

    def _vacate(self, track: Track) -> None:
        track.idle = True
        self._dirty[track] = None

    def _give_back(self, window: Window, nbytes: float) -> None:
        window.credit += nbytes
        self._admitting[window] = None

    def _finish(self, job: SimulatedJob) -> None:
        for user in job.users:
            self.count_down(user)
        if job.then is not None:
            job.then()

    def _at(self, when: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._count), action))

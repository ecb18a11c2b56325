"""A discrete-event engine: jobs on tracks.

A track (a computing unit, one direction of a link) serves one job at a time, the
ready one with the smallest priority number, then the one that was ready first. A job
that has started is not interrupted: messages are preempted where they are sliced.

A message occupies its sender's track and then, cut through, its receiver's, which
serves in order of arrival. A window (ByteScheduler's credit) stands before the track:
it admits the most urgent message as long as its credit is positive, and gets the bytes
back when the message has arrived, one latency later. What it has admitted is served
first in, first out, several windows before one track in turns, by bytes.

Cost: O(J log J) for J jobs.
"""

import heapq
import itertools
from collections.abc import Callable
from typing import NamedTuple


class Span(NamedTuple):
    """One occupation of a track.

    Attributes:
        track: its name.
        name: of the operation or transfer.
        start: seconds.
        end: seconds.
        nbytes: of a transfer, else 0.
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


class Track:
    """A resource that serves one job at a time.

    Attributes:
        name: for the timeline.
    """

    __slots__ = ("free", "idle", "name", "ready")

    def __init__(self, name: str):
        self.name = name
        self.ready: list[tuple[float, int, SimulatedJob]] = []
        self.idle = True
        self.free = 0.0


class Window:
    """How much one worker may have under way in one direction.

    Attributes:
        credit: bytes left; may fall below zero by one message.
        latency: seconds until a credit comes back.
    """

    __slots__ = ("admitted", "credit", "latency", "ready")

    def __init__(self, credit: float, latency: float):
        self.credit = credit
        self.latency = latency
        self.ready: list[tuple[float, int, SimulatedJob]] = []
        self.admitted = 0.0


class SimulatedJob:
    """Something that takes time, or a gate (no track) that takes none.

    Attributes:
        track: where it runs, or None.
        name: for the timeline.
        seconds: on its track.
        priority: the lower, the sooner.
        waiting: how many needs are not met yet.
        users: jobs that need it.
        then: called when it is done.
        receiver: the track at the other end of a message.
        receiving: seconds on that track.
        window: admits it to its track, or None.
    """

    __slots__ = (
        "name", "nbytes", "priority", "receiver", "receiving", "seconds",
        "step", "then", "track", "users", "waiting", "window", "worker",
    )  # fmt: skip

    def __init__(
        self,
        track: Track | None,
        name: str,
        seconds: float = 0.0,
        *,
        priority: float = 0.0,
        nbytes: float = 0,
        worker: int = 0,
        step: int = 0,
    ):
        self.track = track
        self.name = name
        self.seconds = seconds
        self.priority = priority
        self.nbytes = nbytes
        self.worker = worker
        self.step = step
        self.waiting = 0
        self.users: list[SimulatedJob] = []
        self.then: Callable[[], None] | None = None
        self.receiver: Track | None = None
        self.receiving = 0.0
        self.window: Window | None = None

    def need(self, other: "SimulatedJob") -> None:
        """Makes this job wait for another.

        Args:
            other: not yet done.
        """
        self.waiting += 1
        other.users.append(self)


class Engine:
    """Runs jobs in simulated time.

    Attributes:
        now: seconds.
        spans: what ran so far.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.spans: list[Span] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._dirty: dict[Track, None] = {}
        self._admitting: dict[Window, None] = {}

    def release(self, job: SimulatedJob) -> None:
        """Declares a job ready: all that it needs is done.

        Args:
            job: with `waiting` 0.
        """
        if job.track is None:
            self._finish(job)
            return
        if job.window is None:
            self._queue(job.track, job, job.priority)
            return
        heapq.heappush(job.window.ready, (job.priority, next(self._count), job))
        self._admitting[job.window] = None

    def met(self, job: SimulatedJob) -> None:
        """Counts one need of a job as met.

        Args:
            job: with `waiting` above 0.
        """
        job.waiting -= 1
        if not job.waiting:
            self.release(job)

    def run(self) -> None:
        """Runs until nothing is left to do."""
        while self._admitting or self._dirty or self._events:
            # Whatever happens at one instant happens before any track chooses.
            while self._admitting:
                self._admit(self._admitting.popitem()[0])
            while self._dirty:
                self._serve(self._dirty.popitem()[0])
            if not self._events:
                return
            self.now = self._events[0][0]
            while self._events and self._events[0][0] == self.now:
                heapq.heappop(self._events)[2]()

    def _queue(self, track: Track, job: SimulatedJob, priority: float) -> None:
        heapq.heappush(track.ready, (priority, next(self._count), job))
        self._dirty[track] = None

    def _admit(self, window: Window) -> None:
        while window.ready and window.credit > 0:
            job = heapq.heappop(window.ready)[2]
            assert job.track is not None
            self._queue(job.track, job, window.admitted)
            window.credit -= job.nbytes
            window.admitted += job.nbytes

    def _serve(self, track: Track) -> None:
        if track.idle and track.ready:
            self._start(track, heapq.heappop(track.ready)[2])

    def _start(self, track: Track, job: SimulatedJob) -> None:
        track.idle = False
        sent = arrived = self.now + job.seconds
        self._span(track, job, self.now, sent)
        if job.receiver is not None:
            begin = max(self.now, job.receiver.free)
            arrived = max(sent, begin + job.receiving)
            job.receiver.free = arrived
            self._span(job.receiver, job, arrived - job.receiving, arrived)
        self._at(sent, lambda: self._vacate(track))
        self._at(arrived, lambda: self._finish(job))
        if (window := job.window) is not None:
            returned = arrived + window.latency
            self._at(returned, lambda: self._give_back(window, job.nbytes))

    def _vacate(self, track: Track) -> None:
        track.idle = True
        self._dirty[track] = None

    def _give_back(self, window: Window, nbytes: float) -> None:
        window.credit += nbytes
        self._admitting[window] = None

    def _finish(self, job: SimulatedJob) -> None:
        for user in job.users:
            self.met(user)
        if job.then is not None:
            job.then()

    def _at(self, when: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._count), action))

    def _span(self, track: Track, job: SimulatedJob, start: float, end: float) -> None:
        self.spans.append(
            Span(track.name, job.name, start, end, job.nbytes, job.worker, job.step)
        )

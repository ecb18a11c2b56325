"""Trainings over a link whose rate changes, by methods that may change with it.

    rate(step)    what links carry, a function of the steps taken: all meet it alike
    seconds       of the driver's clock: steps, changes of method, what these compile
    a look        the held-out loss after a meeting, which the clock leaves out
    the loss      the mean of the last ten looks, as single ones scatter

Cost: that of the trainings.
"""

import itertools
import math
import time
from collections.abc import Callable, Sequence
from statistics import mean, median
from typing import Any, NamedTuple

from benchmarks.network.lab import Lab
from benchmarks.network.methods import RELAXJAX, Method
from relaxjax.controllers import Controller

NAME = "journey"
LOOK = 50
"""Steps between two looks at the held-out loss, at least."""
LOOKS = 10
"""Looks whose mean is the loss."""
_FEW, _SECOND = 3, 1.0  # steps, and seconds of them, before a pilot is asked
_BLOCK = 0.5  # seconds of steps between two questions


class Phase(NamedTuple):
    """Links of one rate, in Mbit/s, before some step."""

    rate: float
    until: float


class Place(NamedTuple):
    """Where a training is when it is asked for a method.

    Attributes:
      step: steps taken.
      sent: whether the last of them sent.
      exchange: seconds of steps that sent, since the last change or question.
      compute: seconds of those that did not.
    """

    step: int
    sent: bool
    exchange: list[float]
    compute: list[float]


Policy = Callable[[Place], int]
"""From where a training is to the place of the method from here on."""


class Journey(NamedTuple):
    """A training.

    Attributes:
      curve: steps, seconds and held-out loss.
      table: (step, place of the method, seconds of the change and of the first step),
        from the start and at each change.
    """

    curve: list[tuple[int, float, float]]
    table: list[tuple[int, int, float]]

    def losses(self) -> list[float]:
        """The mean of the last looks, at each."""
        looks = [point[2] for point in self.curve]
        ends = range(1, len(looks) + 1)
        return [mean(looks[max(0, end - LOOKS) : end]) for end in ends]

    def to(self, loss: float, which: int = 1) -> float:
        """Seconds until the held-out loss is as low (0: steps); infinite: never."""
        at = [point[which] for point in self.curve]
        points = zip(at, self.losses(), strict=True)
        for (x, above), (y, below) in itertools.pairwise(points):
            if below <= loss:
                share = (above - loss) / (above - below) if above > loss else 0.0
                return x + share * (y - x)
        return math.inf


def fixed(level: int) -> Policy:
    """One method for ever."""
    return lambda place: level


def by_phase(levels: Sequence[int], phases: Sequence[Phase]) -> Policy:
    """A method for each phase, as one knows them in hindsight."""
    return lambda place: levels[phase_at(phases, place.step)]


def piloted(pilot: Controller) -> Policy:
    """What a pilot says of the seconds of real steps.

    It is asked once a second, or as soon as two of three steps are twice as long, or
    half as long, as the others.
    """
    record = pilot.init()

    def level_of(place: Place) -> int:
        nonlocal record
        told = _told(place.exchange)
        if place.sent and told:
            readings = {"exchange": told}
            if len(place.compute) >= _FEW:
                readings["compute"] = [*place.compute]
            record = pilot.update(record, place.step, readings)
            place.exchange.clear()
            place.compute.clear()
        return record.level

    return level_of


def _told(seconds: Sequence[float]) -> list[float]:
    """The steps that a pilot is told of; none: not yet."""
    if len(seconds) < _FEW:
        return []
    last = [*seconds[-_FEW:]]
    if not 0.5 <= median(last) / median(seconds) <= 2:
        return last
    return [*seconds] if sum(seconds) >= _SECOND else []


def told_of(method: Method, *, steps: int, rate: float) -> dict[str, Any]:
    """Plain data of a method that takes over what another one owes, and hands it on."""
    return method.plain(steps=steps, rate=rate) | {"arrears": True}


def phase_at(phases: Sequence[Phase], step: int) -> int:
    """The place of the phase in which a step is, of which so many went before."""
    return next(i for i, phase in enumerate(phases) if step < phase.until)


def travel(
    lab: Lab,
    methods: Sequence[Method],
    policy: Policy,
    phases: Sequence[Phase],
    *,
    rate: float,
    goal: float = -math.inf,
    most: int,
    told: int | None = None,
) -> Journey:
    """Trains until the held-out loss is as low, or for so many steps.

    Args:
      lab: hosts with a crew of relaxjax's.
      methods: what the policy may take.
      policy: takes it.
      phases: the link; the last phase has no end.
      rate: learning rate of Adam.
      goal: the held-out loss.
      most: steps, at most.
      told: steps of a training as methods are told; None: `most`.
    """
    crew, whole = lab.crew(RELAXJAX), most if told is None else told
    place = Place(0, False, [], [])
    level, since, seconds = policy(place), 0, 0.0
    crew.begin(NAME, told_of(methods[level], steps=whole, rate=rate))
    journey = Journey([(0, 0.0, crew.loss(NAME))], [(0, level, 0.0)])
    phase, block, step_seconds = -1, 1, math.inf
    while place.step < most and journey.losses()[-1] > goal:
        if phase != (phase := phase_at(phases, place.step)):
            lab.shape(phases[phase].rate)
            step_seconds = math.inf
        block = max(1, int(_BLOCK / step_seconds))
        period, ends = methods[level].period, min(phases[phase].until, most)
        to_meeting = period - (place.step - since) % period
        block = int(min(block, to_meeting, ends - place.step))
        before = time.perf_counter()
        each = crew.steps(NAME, block).each
        seconds += time.perf_counter() - before
        step_seconds = min(each)
        place = _after(place, each, period, since)
        looked = journey.curve[-1][0]
        if place.sent and (place.step - looked >= LOOK or place.step >= most):
            journey.curve.append((place.step, seconds, crew.loss(NAME)))
        if (new := policy(place)) != level:
            before = time.perf_counter()
            crew.take_over(NAME, told_of(methods[new], steps=whole, rate=rate))
            first = crew.steps(NAME, 1).each
            changed = time.perf_counter() - before
            seconds += changed
            level, since, step_seconds = new, place.step, math.inf
            journey.table.append((since, level, changed))
            place = place._replace(exchange=[], compute=[])
            place = _after(place, first, methods[level].period, since)
    crew.end(NAME)
    return journey


def _after(place: Place, each: Sequence[float], period: int, since: int) -> Place:
    """The place after some steps; the first of each kind compiles, and is not read."""
    exchange, compute = [*place.exchange], [*place.compute]
    for step, seconds in enumerate(each, place.step + 1):
        done = step - since
        if done % period == 0:
            exchange += [seconds] * (done > period)
        else:
            compute += [seconds] * (done > 1)
    step = place.step + len(each)
    return Place(step, (step - since) % period == 0, exchange, compute)

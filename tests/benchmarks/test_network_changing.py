"""Trainings over a link that changes: the loop, its policies, and what is compared."""

import itertools
import math
from typing import Any, NamedTuple

import pytest

from benchmarks.network import changing, journeys
from benchmarks.network.journeys import Phase, Place, by_phase, fixed, piloted, travel
from benchmarks.network.methods import ALONE, RELAXJAX, Method
from relaxjax import controllers

EACH = Method(system=RELAXJAX, name="all_reduce")
SELDOM = Method(system=RELAXJAX, name="local_sgd", period=4)
PHASES = [Phase(1000.0, 10), Phase(5.0, 14), Phase(1000.0, math.inf)]
SECONDS = {1000.0: 0.25, 5.0: 2.0}


class Block(NamedTuple):
    """Seconds of each step."""

    each: list[float]


class Hosts:
    """A lab whose steps take what is said, and whose loss falls by 0.01 a step."""

    def __init__(self) -> None:
        self.rate, self.done, self.method = 0.0, 0, ""
        self.seen: list[Any] = []

    def crew(self, system: str) -> "Hosts":
        assert system == RELAXJAX
        return self

    def shape(self, rate: float) -> None:
        self.rate = rate
        self.seen.append((self.done, rate))

    def begin(self, name: str, method: Any) -> None:
        self.method = method["name"]

    def take_over(self, name: str, method: Any) -> None:
        self.method = method["name"]
        self.seen.append((self.done, self.method))

    def steps(self, name: str, count: int) -> Block:
        self.done += count
        return Block([SECONDS[self.rate]] * count)

    def loss(self, name: str) -> float:
        return 3.0 - 0.01 * self.done

    def end(self, name: str) -> None:
        self.seen.append("end")


def taken(policy: Any, methods: Any = (EACH, SELDOM), **how: Any) -> Any:
    hosts: Any = Hosts()
    way = travel(hosts, methods, policy, PHASES, rate=1e-3, **{"most": 120} | how)
    return hosts, way


def test_links_change_at_the_same_step_for_all():
    for level in (0, 1):
        hosts, way = taken(fixed(level))
        assert hosts.seen == [(0, 1000.0), (10, 5.0), (14, 1000.0), "end"]
        assert hosts.done == 120
        assert way.table == [(0, level, 0.0)]


def test_the_loss_is_looked_at_after_meetings_until_it_is_reached():
    _, each = taken(fixed(0))
    _, seldom = taken(fixed(1), most=121)
    for way in (each, seldom):
        steps = [step for step, _, _ in way.curve]
        assert steps[0] == 0
        assert all(b - a >= journeys.LOOK for a, b in itertools.pairwise(steps[:-1]))
    assert all(step % 4 == 0 for step, _, _ in seldom.curve)
    _, short = taken(fixed(0), goal=2.75)
    assert short.curve[-1][0] == 50
    assert short.to(2.75, 0) == pytest.approx(50, abs=1e-6)
    assert short.to(1.9) == math.inf
    assert short.to(3.5) == 0.0


def test_the_loss_is_the_mean_of_ten_looks():
    looks = [float(k % 2) for k in range(30)]
    way = journeys.Journey([(k, 2.0 * k, x) for k, x in enumerate(looks)], [])
    assert way.losses()[:3] == [0.0, 0.5, 1 / 3]
    assert way.losses()[9:] == [0.5] * 21


def test_in_hindsight_one_changes_before_the_first_slow_step():
    hosts, way = taken(by_phase([0, 1, 0], PHASES))
    assert [row[:2] for row in way.table] == [(0, 0), (10, 1), (14, 0)]
    assert (10, "local_sgd") in hosts.seen
    assert hosts.done == 120


def test_a_pilot_is_asked_once_a_second_or_when_steps_are_twice_as_long():
    asked: list[Any] = []

    def rule(memory: Any, level: Any, told: Any) -> tuple[Any, int]:
        asked.append(told)
        return memory, 1 if sorted(told["exchange"])[1] > 1 else 0

    pilot = controllers.controller(rule, start=0, reads=["exchange"])
    _, way = taken(piloted(pilot))
    assert [row[:2] for row in way.table][:2] == [(0, 0), (12, 1)]  # the second of 2 s
    assert set(asked[0]["exchange"]) == {0.25}
    assert len(asked[0]["exchange"]) >= 4  # a second of steps
    slow = [told["exchange"] for told in asked if 2.0 in told["exchange"]]
    assert slow[0].count(2.0) == 2
    back = way.table[2][0]
    assert (back - 12) % 4 == 0  # after a meeting
    assert asked[-1].get("compute", [0.25])[-1] == 0.25


def test_a_pilot_hears_of_a_second_or_of_what_breaks():
    assert journeys._told([9.0, 9.0]) == []
    assert journeys._told([0.1] * 9) == []
    assert journeys._told([0.1] * 11) == [0.1] * 11
    assert journeys._told([0.1] * 8 + [1.2]) == [0.1] * 8 + [1.2]
    assert journeys._told([0.1] * 5 + [1.2, 1.2]) == [0.1, 1.2, 1.2]
    assert journeys._told([0.5] * 5 + [0.1, 0.1]) == [0.5, 0.1, 0.1]


def test_a_first_step_of_each_kind_is_not_read():
    start = Place(10, False, [], [])
    after = journeys._after(start, [9.0, 1.0, 1.0, 8.0, 1.0, 1.0, 1.0, 2.0], 4, 10)
    assert after == Place(18, True, [2.0], [1.0, 1.0, 1.0, 1.0, 1.0])
    each = journeys._after(start, [9.0, 1.0, 2.0, 3.0, 4.0], 1, 10)
    assert each == Place(15, True, [1.0, 2.0, 3.0, 4.0], [])


def test_worth_is_steps_to_what_all_have_reached():
    plain = journeys.Journey([(0, 0.0, 3.0), (100, 1.0, 1.0)], [])
    half = journeys.Journey([(0, 0.0, 3.0), (200, 1.0, 1.0)], [])
    less = journeys.Journey([(0, 0.0, 3.0), (100, 1.0, 2.0)], [])
    assert changing.worth_of([plain, half]) == [1.0, 0.5]
    assert changing.worth_of([plain, less]) == [1.0, 0.5]


def test_hindsight_weighs_seconds_by_worth():
    labels = [m.label for m in changing.METHODS]
    seconds = {ALONE: {1000.0: 0.1, 5.0: 0.1}}
    for label, fast, slow in zip(labels, (1.0, 1.2, 1.1), (9, 3, 2), strict=True):
        seconds[label] = {1000.0: fast, 5.0: slow}
    found = {"step_seconds": seconds, "worth": dict.fromkeys(labels, 1.0)}
    assert changing.levels_of(found, PHASES) == [0, 2, 0]
    found["worth"][labels[2]] = 0.5
    assert changing.levels_of(found, PHASES) == [0, 1, 0]


def test_seconds_are_compared_within_a_round():
    def row(number: int, name: str, seconds: float) -> dict[str, Any]:
        return {
            "round": number,
            "name": name,
            "seconds": seconds,
            "steps": 5,
            "table": [],
        }

    hindsight = changing.HINDSIGHT
    journey = [row(0, hindsight, 2.0), row(0, "a", 3.0), row(1, hindsight, 4.0)]
    rows = changing.compared([*journey, row(1, "a", 5.0)])
    assert [row["name"] for row in rows] == [hindsight, "a"]
    assert rows[1]["over"] == [1.5, 1.25]


def test_the_target_holds_in_each_round():
    def rows(*over: float) -> Any:
        return [{"name": "a", "over": [9.0]}, {"name": "autopilot", "over": over}]

    assert changing.verdict(rows(1.0, 1.1)).endswith("is met")
    assert changing.verdict(rows(1.0, 1.11)).endswith("is missed")


def test_phases_have_an_end_each_but_the_last():
    assert changing.phases_of([1.0, 2.0], [7]) == [Phase(1.0, 7), Phase(2.0, math.inf)]
    for until in ([], [3, 2], [2, 2]):
        with pytest.raises(ValueError, match=r"until=.* must ascend, one for each"):
            changing.phases_of([1.0, 2.0, 3.0], until)


def test_the_pilot_knows_the_rows():
    labels = [m.label for m in changing.METHODS]
    found = {
        "step_seconds": {ALONE: {1000.0: 0.02}},
        "worth": dict.fromkeys(labels, 1.0),
    }
    pilot = changing.pilot_of(found, changing.Shape(16, 1, 4), 1000.0)
    slow = pilot.update(pilot.init(), 3, {"exchange": [3.0, 3.0, 3.0]})
    assert labels[slow.level] == labels[2]

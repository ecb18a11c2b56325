"""All stop before the same step, whichever was asked, wherever they are."""

import threading

import pytest

from relaxjax.hosts import Hosts, Member
from relaxjax.hosts._join import WATCH
from relaxjax.hosts._kv_store import LocalStore
from relaxjax.hosts._stop import Stop

GOES_ON = threading.Event()


def team(processes: int) -> tuple[LocalStore, list[Stop]]:
    store = LocalStore()
    members = tuple(Member(i, "host", "127.0.0.1", i) for i in range(processes))
    return store, [Stop(Hosts(i, members, store)) for i in range(processes)]


def agree(store: LocalStore, stops: list[Stop]) -> None:
    for stop in stops:
        stop.agree(store.read(WATCH))


@pytest.mark.parametrize("asked", [0, 2])
def test_the_first_step_that_none_has_begun(asked):
    store, stops = team(3)
    for stop, steps in zip(stops, (4, 7, 5), strict=True):  # steps 0 to 3, 6 and 4
        assert not any(stop.before(step, GOES_ON) for step in range(steps))
    agree(store, stops)
    assert stops[asked].ask("SIGTERM")
    assert not stops[asked].ask("SIGTERM")
    for _ in range(4):
        agree(store, stops)
    assert [stop.before(6, GOES_ON) for stop in (stops[0], stops[2])] == [False] * 2
    assert all(stop.before(7, GOES_ON) for stop in stops)


def test_nobody_begins_a_step_until_all_have_said_where_they_are():
    store, (one, two) = team(2)
    one.before(0, GOES_ON)
    two.before(0, GOES_ON)
    one.ask("Ctrl-C")
    for _ in range(3):
        agree(store, [one])  # has said where it is, and waits for the other
    begun, polls = [], threading.Event()

    class Polled(threading.Event):
        def is_set(self) -> bool:
            polls.set()  # only who waits asks whether to give up
            return False

    waits = threading.Thread(
        target=lambda: begun.append(one.before(1, Polled())), daemon=True
    )
    waits.start()
    assert polls.wait(60)
    assert not two.before(1, GOES_ON)
    agree(store, [two, one, two])
    waits.join(60)
    assert begun == [False]
    assert one.before(2, GOES_ON)
    assert two.before(2, GOES_ON)


def test_one_that_has_left_its_loop_counts():
    store, (one, two) = team(2)
    one.before(0, GOES_ON)
    two.before(9, GOES_ON)
    store.put(f"{WATCH}/sign/1", "17 9 done")
    one.ask("SIGTERM")
    for _ in range(3):
        agree(store, [one])
    assert not one.before(9, GOES_ON)  # the other has run it
    assert one.before(10, GOES_ON)


def test_a_diagnosis_ends_the_wait():
    store, (one, _) = team(2)
    one.ask("SIGTERM")
    agree(store, [one])
    agree(store, [one])
    given_up = threading.Event()
    given_up.set()
    assert not one.before(0, given_up)

"""A watch over one process: signals, patience, errors."""

import os
import signal
import threading
import time

import pytest

from relaxjax import hosts
from relaxjax.hosts import _watch
from relaxjax.hosts._join import WATCH


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_loop(number):
    before = signal.getsignal(number)
    with hosts.Watch(hosts.join(), interval=0.01) as watch:
        step = 0
        while not watch.stops_before(step):
            step += 1
            if step == 5:
                os.kill(os.getpid(), number)
    assert step >= 5
    assert signal.getsignal(number) == before


@pytest.mark.parametrize("asked", [True, False])
def test_who_stops_when_asked_has_not_failed(asked):
    """An exception is the usual way out of a loop, and the others stop too."""
    team = hosts.join()

    def out() -> None:
        with hosts.Watch(team, interval=0.01) as watch:
            if asked:
                os.kill(os.getpid(), signal.SIGTERM)
            step = 0
            while asked and not watch.stops_before(step):
                step += 1
            raise KeyError

    with pytest.raises(KeyError):
        out()
    keys = [key.rpartition("/")[2] for key in team.board.read(WATCH)]
    assert ("diagnosis" in keys) == (not asked)


def test_a_later_watch_is_not_asked_what_another_one_was():
    """As where a notebook's cell runs again, or training has a second part."""
    team = hosts.join()

    def stopped_at(interrupt: int | None) -> int:
        with hosts.Watch(team, interval=0.01) as watch:
            for step in range(20):
                if watch.stops_before(step):
                    return step
                if step == interrupt:
                    os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.02)
        return 20

    assert stopped_at(2) < 20
    assert [stopped_at(None), stopped_at(None)] == [20, 20]
    with pytest.raises(KeyError), hosts.Watch(team, interval=0.01):
        raise KeyError  # its diagnosis is its own
    assert stopped_at(None) == 20


def test_who_has_left_stays_away(monkeypatch):
    """A sign of life that is still under way does not stand after the last one."""
    team = hosts.join()
    post, begun = _watch.Watch._post, threading.Event()

    def slow(self: hosts.Watch, flag: str) -> None:
        if flag == "on":
            begun.set()
            time.sleep(0.3)
        post(self, flag)

    monkeypatch.setattr(_watch.Watch, "_post", slow)
    with hosts.Watch(team, interval=0.01):
        assert begun.wait(10)
    time.sleep(0.6)
    assert team.board.read(WATCH)["sign/0"].split()[2] == "done"


def test_signs_of_another_watch_in_the_program():
    """Those of one before say nothing; who is in a later one has left."""
    with hosts.Watch(hosts.join()) as mine:
        number = mine._number
    hosts.Watch(hosts.join())  # one that is not entered counts for nothing
    with hosts.Watch(hosts.join()) as another:
        assert another._number == number + 1
    signs = {f"sign/{i}": f"17 9 on {number - 1 + i}" for i in range(3)}
    own = {f"{number}/diagnosis": "process 1 is lost", f"{number}/at/1": "7"}
    others = {f"{number - 1}/asked": "Ctrl-C", f"{number + 1}/at/0": "3"}
    found = mine._of_this_watch({**signs, **own, **others})
    kept = {"sign/1": "17 9 on", "sign/2": "17 -1 done"}
    assert found == {**kept, "diagnosis": "process 1 is lost", "at/1": "7"}


def test_a_second_signal_interrupts():
    def twice(watch: hosts.Watch) -> None:
        with watch:
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        twice(hosts.Watch(hosts.join()))


def test_who_is_stuck_ends(monkeypatch, capfd):
    ended: list[int] = []
    done = threading.Event()

    def leave(status: int) -> None:
        ended.append(status)
        done.set()

    monkeypatch.setattr(_watch.os, "_exit", leave)
    monkeypatch.setattr(_watch, "_GRACE", 0.01)
    monkeypatch.setattr(_watch, "_LAST", 0.01)

    def hang() -> None:
        watch = hosts.Watch(
            hosts.join(), lost_after=60, stuck_after=0.05, interval=0.01
        )
        with watch:
            watch.stops_before(7)
            assert done.wait(60)
            watch.stops_before(8)

    with pytest.raises(hosts.LostProcess, match="is stuck: it lives, but has begun no"):
        hang()
    assert ended == [_watch.STATUS]
    assert "the last step heard of was 7" in capfd.readouterr().err


def test_a_silent_coordinator_is_lost(monkeypatch):
    ended = threading.Event()
    monkeypatch.setattr(_watch.os, "_exit", lambda status: ended.set())
    monkeypatch.setattr(_watch, "_GRACE", 0.01)
    monkeypatch.setattr(_watch, "_LAST", 0.01)
    hears = threading.Event()

    class Silent:
        def put(self, key: str, text: str) -> None:
            hears.wait(60)

        def put_if_absent(self, key: str, text: str) -> str:
            raise OSError

        def read(self, folder: str) -> dict[str, str]:
            return {}

    team = hosts.join()._replace(board=Silent())
    watch = hosts.Watch(team, lost_after=0.05, interval=0.01)

    def wait() -> None:
        with watch:
            assert ended.wait(60)
            hears.set()
            watch.stops_before(0)

    with pytest.raises(hosts.LostProcess, match="the coordinator, is lost: it has not"):
        wait()


def test_errors_of_collectives_are_told_from_others():
    assert _watch._broken(ValueError("UNKNOWN: Gloo all-reduce failed"))
    assert _watch._broken(RuntimeError("NCCL error"))
    assert not _watch._broken(ValueError("shapes differ"))
    assert not _watch._broken(KeyError("gloo"))
    assert not _watch._broken(hosts.LostProcess("connection"))
    assert not _watch._broken(None)


def test_an_error_of_ones_own_stays_itself_and_is_posted():
    team = hosts.join()

    def fail() -> None:
        with hosts.Watch(team):
            raise KeyError("x")

    with pytest.raises(KeyError, match="x"):
        fail()
    (said,) = (x for k, x in team.board.read(WATCH).items() if "diagnosis" in k)
    assert "has failed: KeyError: 'x'" in said


def test_patience():
    team = hosts.join()
    with pytest.raises(ValueError, match="stuck_after=0; it must be more than 0 sec"):
        hosts.Watch(team, stuck_after=0)
    with pytest.raises(ValueError, match=r"lost_after=1.0 is less than four times"):
        hosts.Watch(team, lost_after=1.0)

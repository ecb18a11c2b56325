"""Strangers at the meeting point cost no time, and learn and move nothing."""

import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from relaxjax._core.foreign._job import TOKEN
from relaxjax.hosts import _join, _launch, _meeting
from relaxjax.hosts import _messages as messages
from relaxjax.hosts._members import Report, this_process
from relaxjax.hosts._rendezvous import BIND, rendezvous
from tests.hosts.test_rendezvous import free_address

GUARD = 60.0  # seconds after which a test that hangs has failed
WAIT = 50.0
NUMBER = "0" * 32


class Threads:
    """An executor whose threads do not keep the tests from ending, if one hangs."""

    def submit(self, call: Callable[..., Any], *given: Any, **how: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(call(*given, **how))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        return future


@pytest.fixture
def pool() -> Threads:
    return Threads()


def came(address: str) -> socket.socket:
    """A connection to process 0, as soon as it listens."""
    host, port = address.split(":")
    until = time.monotonic() + GUARD
    while True:
        try:
            return socket.create_connection((host, int(port)), GUARD)
        except ConnectionRefusedError:
            assert time.monotonic() < until


def greeting(line: socket.socket) -> str:
    return messages.greeted(messages.read_line(line, time.monotonic() + GUARD, 99))


def said(number: int, processes: int = 2) -> dict[str, Any]:
    """The content of a sound report."""
    report = Report(this_process(number), processes, {})
    return {"report": report, "nonce": NUMBER}


@contextmanager
def dripping(line: socket.socket) -> Iterator[None]:
    """A byte now and then, and no end of a line."""
    stop = threading.Event()

    def drip() -> None:
        while not stop.wait(0.02):
            try:
                line.sendall(b"x")
            except OSError:
                return

    thread = threading.Thread(target=drip, daemon=True)
    thread.start()
    yield
    stop.set()
    thread.join()


def test_silent_strangers_cost_no_time(pool, monkeypatch):
    monkeypatch.setattr(_meeting, "_PATIENCE", 10 * GUARD)
    address = free_address()
    first = pool.submit(rendezvous, address, 2, 0, versions={}, wait=WAIT)
    strangers = [came(address) for _ in range(5)]
    with dripping(strangers[0]):
        second = pool.submit(rendezvous, address, 2, 1, versions={}, wait=WAIT)
        assert first.result(GUARD) == second.result(GUARD)
    for line in strangers:
        line.close()


def test_wait_is_kept_whoever_connects(pool):
    address = free_address()
    first = pool.submit(rendezvous, address, 2, 0, versions={}, wait=0.3)
    with (
        came(address) as line,
        dripping(line),
        pytest.raises(TimeoutError, match=r"processes \[1\] did not come in 0.3 s"),
    ):
        first.result(GUARD)


def test_strangers_are_sent_away(pool, monkeypatch):
    """Those that say nothing, too much, or too many at a time."""
    monkeypatch.setattr(_meeting, "_PATIENCE", 0.1)
    monkeypatch.setattr(_meeting, "_TICK", 0.05)
    monkeypatch.setattr(_meeting, "_MOST", 4)
    address = free_address()
    first = pool.submit(rendezvous, address, 2, 0, versions={}, wait=WAIT)
    with came(address) as silent:
        greeting(silent)
        assert silent.recv(1) == b""  # before the others come: time was over
    monkeypatch.setattr(_meeting, "_PATIENCE", 10 * GUARD)
    crowd = [came(address) for _ in range(6)]
    assert crowd[0].recv(99).startswith(b"relaxjax")
    assert crowd[0].recv(1) == b""
    for line in crowd:
        line.close()
    with came(address) as long:
        greeting(long)
        with suppress(OSError):  # it may be closed while this sends
            long.sendall(b"x" * (messages.REPORT + 1))
        with suppress(ConnectionResetError):
            assert long.recv(1) == b""
    second = pool.submit(rendezvous, address, 2, 1, versions={}, wait=WAIT)
    assert first.result(GUARD) == second.result(GUARD)


def reported(*parts: Any) -> dict[str, Any]:
    return {"report": [*parts], "nonce": NUMBER}


BAD: dict[str, Callable[[], Any]] = {
    "no dict": lambda: [1],
    "no report": lambda: {"nonce": NUMBER},
    "a nonce of another form": lambda: {**said(1), "nonce": "1"},
    "a nonce that is no text": lambda: {**said(1), "nonce": [1]},
    "too few parts": lambda: reported(ROW, 2, {}),
}
ROW = [1, "h", "a", 1, None, ""]
for _name, _row in {
    "a number as text": ["x", "h", "a", 1, None, ""],
    "no number": [None, "h", "a", 1, None, ""],
    "half a number": [1.5, "h", "a", 1, None, ""],
    "a truth as a number": [True, "h", "a", 1, None, ""],
    "a list as a number": [[1], "h", "a", 1, None, ""],
    "a number below 0": [-1, "h", "a", 1, None, ""],
    "a large number": [2**31, "h", "a", 1, None, ""],
    "a host that is no text": [1, {"x": 1}, "a", 1, None, ""],
    "a long host": [1, "h" * 256, "a", 1, None, ""],
    "a host of several lines": [1, "h\nprocess 0", "a", 1, None, ""],
    "a row that is short": [1, "h", "a"],
    "a row that is a text": "1hapxy",
    "devices as text": [1, "h", "a", 1, "0", ""],
    "a device below 0": [1, "h", "a", 1, [-1], ""],
    "many devices": [1, "h", "a", 1, [*range(256)], ""],
    "what it sees as a number": [1, "h", "a", 1, None, 0],
}.items():
    BAD[_name] = lambda row=_row: reported(row, 2, {}, None)
for _name, _versions in {
    "versions in a list": [],
    "no versions": None,
    "a version that is no text": {"a": {"b": 1}},
    "many versions": {str(i): "" for i in range(65)},
}.items():
    BAD[_name] = lambda value=_versions: {
        "report": [ROW, 2, value, None],
        "nonce": NUMBER,
    }
for _name, _layout in {
    "a layout that is no list": 0,
    "a local number as text": ["0", 1, 1, False],
    "no process on a host": [0, 0, 1, False],
    "half a device": [0, 1, 1.5, False],
    "many devices on a host": [0, 1, 256, False],
    "a number as a truth": [0, 1, 1, 0],
}.items():
    BAD[_name] = lambda value=_layout: reported(ROW, 2, {}, value)
BAD["processes as text"] = lambda: reported(ROW, "2", {}, None)


@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
def test_types_and_sizes_of_reports_are_checked(content):
    with pytest.raises(ValueError, match="not what a process reports"):
        messages.report_of(json.loads(json.dumps(content())))
    row, layout = [1, "h", "a", 1, [0, 2], "s"], [0, None, 4, True]
    sound = {"report": [row, 2, {"a": "1"}, layout], "nonce": NUMBER}
    report, number = messages.report_of(sound)
    assert (report.member, report.processes) == ((1, "h", "a", 1, (0, 2), "s"), 2)
    assert report.layout == (0, None, 4, True)
    assert (dict(report.versions), number) == ({"a": "1"}, NUMBER)


def test_no_line_is_more_than_a_wrong_value():
    """Random changes of a sound line: it is read, or it is a ValueError."""
    rng = random.Random(0)
    sound = messages.sealed("", "report 1", said(1)).strip()
    pieces = [b"[", b"]", b"{", b"}", b'"', b",", b":", b"-1", b"1e999", b"NaN"]
    pieces += [b"null", b"true", b"9" * 5000, b"[" * 12_000, b"\xff", b"\\u0000", b" "]
    read = 0
    for _ in range(2000):
        body = bytearray(sound.partition(b" ")[2])
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(body))
            body[at : at + rng.randint(0, 4)] = rng.choice(pieces)
        if rng.random() < 0.1:
            body[:] = rng.choice(pieces)
        mac = messages._mac("", "report 1", bytes(body))
        line = rng.choice([mac, mac[1:]]).encode() + b" " + bytes(body)
        with suppress(ValueError):
            messages.report_of(messages.opened("", "report 1", line))
            read += 1
        with suppress(ValueError):
            messages.answer_of(messages.opened("", "report 1", line), 2)
        with suppress(ValueError):
            messages.greeted(bytes(body))
    assert 0 < read < 500


def test_bad_reports_move_nothing(pool):
    """Even where they are sealed rightly: with no token, everybody can."""
    address = free_address()
    first = pool.submit(rendezvous, address, 2, 0, versions={}, wait=WAIT)
    deep = b"[" * 10_000
    for make in (*BAD.values(), None):
        with came(address) as line:
            purpose = f"report {greeting(line)}"
            sealed = messages.sealed("", purpose, make() if make else 0)
            if make is None:
                mac = messages._mac("", purpose, deep)
                sealed = f"{mac} ".encode() + deep + b"\n"
            line.sendall(sealed)
            assert line.recv(1) == b""
    second = pool.submit(rendezvous, address, 2, 1, versions={}, wait=WAIT)
    assert first.result(GUARD) == second.result(GUARD)


@pytest.mark.parametrize("token", ["other", ""])
def test_another_token_is_refused_and_named(pool, token):
    address = free_address()
    first = pool.submit(
        rendezvous, address, 2, 0, versions={}, wait=1, token="a secret"
    )
    with pytest.raises(ValueError, match=f"process 0 at {address} has another {TOKEN}"):
        rendezvous(address, 2, 1, versions={}, wait=WAIT, token=token)
    with pytest.raises(TimeoutError, match=f"refused, with another {TOKEN} .*127.0.0"):
        first.result(GUARD)


def test_without_the_token_nobody_stops_a_job(pool):
    """A report that would be an error from one who belongs to it."""
    address = free_address()
    first = pool.submit(
        rendezvous, address, 2, 0, versions={}, wait=WAIT, token="a secret"
    )
    with came(address) as line:
        report = messages.sealed("", f"report {greeting(line)}", said(1, processes=3))
        line.sendall(report)
        assert messages.read_line(line, time.monotonic() + GUARD, 99).endswith(b"used")
    second = pool.submit(
        rendezvous, address, 2, 1, versions={}, wait=WAIT, token="a secret"
    )
    assert first.result(GUARD) == second.result(GUARD)


def test_a_line_of_another_meeting_is_worth_nothing():
    line = messages.sealed("t", "report 1", said(1)).strip()
    assert messages.opened("t", "report 1", line)["nonce"] == NUMBER
    for token, purpose in (("t", "report 2"), ("t", "answer 1"), ("u", "report 1")):
        with pytest.raises(messages.OtherTokenError):
            messages.opened(token, purpose, line)
    assert b" t " not in line
    assert messages.nonce() != messages.nonce()


@pytest.mark.long
def test_who_leaves_has_not_come(pool):
    """Process 1 gives up before process 2 is there: process 0 must not go on."""
    address = free_address()
    first = pool.submit(rendezvous, address, 3, 0, versions={}, wait=2)
    with came(address) as line:
        purpose = f"report {greeting(line)}"
        line.sendall(messages.sealed("", purpose, said(1, processes=3)))
        time.sleep(0.1)
    second = pool.submit(rendezvous, address, 3, 2, versions={}, wait=2)
    for one in (first, second):
        with pytest.raises(
            TimeoutError, match=r"\[1\] did not .* left again: process 1"
        ):
            one.result(GUARD)


def test_who_comes_again_counts_once(pool):
    """Its first connection broke, and process 0 has not heard of that yet."""
    address = free_address()
    first = pool.submit(rendezvous, address, 3, 0, versions={}, wait=WAIT)
    with came(address) as line:
        purpose = f"report {greeting(line)}"
        line.sendall(messages.sealed("", purpose, said(1, processes=3)))
        again = pool.submit(rendezvous, address, 3, 1, versions={}, wait=WAIT)
        assert line.recv(1) == b""
        other = pool.submit(rendezvous, address, 3, 2, versions={}, wait=WAIT)
        table = first.result(GUARD)
        assert again.result(GUARD) == other.result(GUARD) == table


@pytest.mark.parametrize("answer", [(this_process(0), this_process(1)), None])
def test_answers_are_checked(answer):
    content = messages.answered(answer or TimeoutError("nobody came"))
    content = json.loads(json.dumps(content))
    got = messages.answer_of(content, 2)
    assert str(got) == str(answer or "nobody came")
    assert isinstance(got, TimeoutError if answer is None else tuple)
    for wrong in ({"kind": "x"}, {"members": []}, [], {"members": [ROW, ROW]}):
        with pytest.raises(ValueError, match="not what a process reports"):
            messages.answer_of(wrong, 2)


def test_a_wait_is_a_time():
    for wait in (0.0, float("inf"), float("nan"), -1.0):
        with pytest.raises(ValueError, match=f"wait={wait}; it must be seconds, more"):
            rendezvous("127.0.0.1:1", 2, 0, versions={}, wait=wait)
        with pytest.raises(ValueError, match=f"wait={wait}; it must be seconds, more"):
            _join.join(wait=wait)


def test_launch_draws_a_token(monkeypatch):
    def tokens() -> set[str]:
        said: set[str] = set()
        command = ["sh", "-c", f"echo ${TOKEN}"]
        _launch.launch(command, 2, say=lambda *line: said.add(line[2]))
        return said

    monkeypatch.delenv(TOKEN, raising=False)
    one, other = tokens(), tokens()
    assert len(one) == len(other) == 1
    assert one != other
    assert all(len(token) == 32 for token in one | other)
    monkeypatch.setenv(TOKEN, "mine")
    assert tokens() == {"mine"}


def test_launch_listens_at_its_own_address(monkeypatch):
    """And not at that of a job around it."""
    monkeypatch.setenv(BIND, "0.0.0.0:29400")
    said: list[str] = []
    _launch.launch(["sh", "-c", f"echo .${BIND}"], 1, say=lambda *x: said.append(x[2]))
    assert said == ["."]


def test_jax_listens_where_the_meeting_was(monkeypatch):
    """At the given address alone; a slow meeting leaves JAX time for its own start."""
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(_join, "_require_first", lambda: None)
    monkeypatch.setattr(_join, "open_store", lambda: None)
    both = this_process(0), this_process(1)
    monkeypatch.setattr(
        _join, "rendezvous", lambda *_, **how: calls.append(how) or both
    )
    monkeypatch.setattr(_join.atexit, "register", lambda _: None)
    monkeypatch.setattr(_join.jax.config, "update", lambda *_: None)
    monkeypatch.setattr(
        _join.jax.distributed, "initialize", lambda *_, **how: calls.append(how)
    )
    monkeypatch.setenv(TOKEN, "t")
    monkeypatch.delenv("JAX_COORDINATOR_BIND_ADDRESS", raising=False)
    _join.join("127.0.0.1:29400", 2, 0, wait=1)
    _join.join("127.0.0.1:29400", 2, 1, wait=600)
    monkeypatch.setenv("JAX_COORDINATOR_BIND_ADDRESS", "0.0.0.0:29400")
    _join.join("127.0.0.1:29400", 2, 0)
    assert [how["token"] for how in calls[::2]] == ["t"] * 3
    assert [how["bind"] for how in calls[::2]] == [None, None, "0.0.0.0:29400"]
    listens = [how["coordinator_bind_address"] for how in calls[1::2]]
    assert listens == ["127.0.0.1:29400", None, None]
    left = [how["initialization_timeout"] for how in calls[1::2]]
    assert left[0] == 30
    assert 500 < left[1] <= 600

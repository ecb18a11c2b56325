"""Answers that are kept: as few calls as there are changes, and none too old."""

import errno
import random
import sys
import threading
from collections import Counter
from typing import Any

import pytest

from relaxjax.islands import Folder
from relaxjax.islands.carriers import _remembered
from relaxjax.islands.carriers._remembered import Recorded, Remembered
from tests.islands.world import Memory


class Counted(Recorded):
    """A store that counts its calls, and may not answer."""

    def __init__(self, store: Any):
        super().__init__(store)
        self.calls, self.is_gone = Counter[str](), False

    def changes(self, journal: str, count: int) -> Any:
        self._heard("changes")
        return super().changes(journal, count)

    def _call(self, verb: str, name: str, *data: bytes) -> Any:
        self._heard(verb)
        return super()._call(verb, name, *data)

    def _heard(self, verb: str) -> None:
        self.calls[verb] += 1
        if self.is_gone:
            raise OSError(errno.EHOSTUNREACH, "nobody answers")


@pytest.fixture
def shared() -> Counted:
    return Counted(Memory())


def remembering(shared: Any, now: list[float]) -> Remembered:
    return Remembered(shared, 1.0, lambda: now[0])


def missing(store: Any, name: str) -> bool:
    try:
        store.read(name)
    except FileNotFoundError as error:
        return error.filename == name
    return False


def test_only_what_has_changed_is_asked_for_again(shared):
    now = [0.0]
    mine, other = remembering(shared, now), remembering(shared, now)
    other.create("a/x", b"1")
    other.create("b/y", b"2")
    for _ in range(5):
        now[0] += 2
        assert (mine.read("a/x"), mine.names("a"), mine.names("b")) == (
            b"1", ["x"], ["y"],
        )  # fmt: skip
        assert missing(mine, "a/z")
    assert shared.calls == {"create": 2, "changes": 5, "read": 2, "names": 2}
    other.replace("a/x", b"3")
    now[0] += 2
    assert (mine.read("a/x"), mine.names("a"), mine.names("b")) == (b"3", ["x"], ["y"])
    assert shared.calls["read"] == 3
    assert shared.calls["names"] == 3  # those of a, and not of b
    other.create("a/z", b"4")
    now[0] += 2
    assert not missing(mine, "a/z")
    assert mine.names("a") == ["x", "z"]
    other.delete("a/z")
    now[0] += 2
    assert missing(mine, "a/z")
    assert mine.names("a") == ["x"]


def test_answers_are_fresh_for_so_long_and_own_writes_are_seen_at_once(shared):
    now = [0.0]
    mine, other = remembering(shared, now), remembering(shared, now)
    assert missing(mine, "x")
    other.create("x", b"1")
    now[0] = 0.9
    assert missing(mine, "x")
    assert shared.calls["changes"] == 1
    now[0] = 1.0
    assert mine.read("x") == b"1"
    mine.replace("x", b"2")
    assert mine.read("x") == b"2"
    assert not mine.create("x", b"3")
    mine.delete("x")
    assert missing(mine, "x")


def test_a_write_that_failed_may_have_come_about(shared):
    mine = remembering(shared, [0.0])
    assert missing(mine, "x")
    shared._store.fault = "deaf"
    with pytest.raises(TimeoutError):
        mine.create("x", b"1")
    assert mine.read("x") == b"1"


def test_another_journal_or_too_many_changes_are_a_reason_to_forget(
    shared, monkeypatch
):
    now = [0.0]
    mine = remembering(shared, now)
    mine.create("x", b"1")
    assert mine.read("x") == b"1"
    shared._store.files["x"] = b"2"
    Recorded.__init__(shared, shared._store)
    now[0] += 2
    assert mine.read("x") == b"2"
    shared._store.files["x"] = b"3"
    for i in range(_remembered._LAST + 1):
        shared.replace("other", b"%d" % i)
    now[0] += 2
    assert mine.read("x") == b"3"
    monkeypatch.setattr(_remembered, "_MOST", 10)
    for i in range(100):
        now[0] += 2
        missing(mine, f"name{i}")
    assert len(mine._kept) <= 12


def test_large_files_are_not_kept(shared):
    mine = remembering(shared, [0.0])
    shared.create("large", bytes(5000))
    for _ in range(3):
        assert mine.read("large") == bytes(5000)
    assert shared.calls["read"] == 3


def test_a_store_that_does_not_answer_is_not_answered_for(shared):
    now = [0.0]
    mine = remembering(shared, now)
    mine.create("x", b"1")
    assert mine.read("x") == b"1"
    now[0], shared.is_gone = 2.0, True
    for _ in range(2):
        with pytest.raises(OSError, match="nobody answers"):
            mine.read("x")
    shared.is_gone = False
    assert mine.read("x") == b"1"


def test_an_answer_under_way_does_not_outlive_a_change(shared):
    """The file changes behind an answer, and another thread hears of it first."""
    now = [0.0]
    mine = remembering(shared, now)
    shared.create("x", b"1")
    ask = mine._ask

    def meanwhile(verb: str, name: str, *rest: Any) -> Any:
        answer = ask(verb, name, *rest)
        mine._ask = ask
        shared.replace("x", b"2")
        now[0] += 2
        assert missing(mine, "y")
        return answer

    mine._ask = meanwhile
    assert mine.read("x") == b"1"
    assert mine.read("x") == b"2"


def test_threads_read_what_they_wrote(tmp_path):
    shared = Recorded(Folder(tmp_path))
    store, wrong = Remembered(shared, 1e9), list[Any]()
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def run(name: str) -> None:
        draw = random.Random(name)
        for i in range(200):
            store.replace(name, b"%d" % i)
            if draw.random() < 0.5 and store.read(name) != b"%d" % i:
                wrong.append((name, i))

    threads = [threading.Thread(target=run, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(before)
    assert not wrong

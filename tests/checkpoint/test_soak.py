"""A run, two readers, rollbacks, kills and full disks: each resume is to the bit."""

import json
import multiprocessing
import random
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from relaxjax import emulate
from relaxjax.checkpoint import Checkpoints
from tests.checkpoint import trainer
from tests.hosts.launched import launched

LIVES = 5
TOGETHER = 3  # lives of several processes, which take seconds to start
START = multiprocessing.get_context("forkserver")


class Books:
    """What may be on disk, and what must be, by the journals of the lives."""

    def __init__(self):
        self.logs: dict[int, list[list[int]]] = {0: [[]]}  # by step, possible ones
        self.sure: set[int] = set()
        self.under_way: int | None = None
        self.next: int | None = None
        self.branch: list[int] = []  # that a life is about to leave
        self.saved: set[tuple[int, ...]] = {()}  # all that was ever saved
        self.seen = {"failed": 0, "goes back": 0, "killed": 0, "read": 0}

    def add(self, what: str, about: Any = None) -> None:
        if what in self.seen:
            self.seen[what] += 1
        {
            "listed": self.listed,
            "restored": self.restored,
            "goes back": self.goes_back,
            "saves": self.saves,
            "began": self.began,
            "waited": self.began,
            "failed": self.failed,
        }[what](about)

    def enter(self, journal: Path) -> None:
        """Adds the lines of a journal, if there is one."""
        for line in journal.read_text().splitlines() if journal.exists() else ():
            self.add(*json.loads(line))

    def listed(self, steps: list[int]) -> None:
        """A life begins; what the last one had under way is there, or is not."""
        assert {*steps} <= self.logs.keys()
        for step in self.sure - {*steps}:  # removed, since enough newer ones came
            assert sum(other > step for other in steps) >= trainer.KEEP
        self.logs = {s: x for s, x in self.logs.items() if s in [0, *steps]}
        stay = [step in steps for step in self.branch]
        assert stay == sorted(stay, reverse=True)  # what is left is its beginning
        self.sure, self.branch = {*steps}, []
        self.under_way = self.next = None

    def restored(self, log: list[int]) -> None:
        assert log in self.logs[len(log)]
        self.logs = {s: x for s, x in self.logs.items() if s < len(log)}
        self.logs[len(log)] = [log]
        self.sure, self.branch = {s for s in self.sure if s <= len(log)}, []

    def goes_back(self, step: int) -> None:
        """What is newer is moved aside, the newest first."""
        self.branch = sorted(s for s in self.sure if s > step)
        self.sure = {s for s in self.sure if s <= step}

    def saves(self, log: list[int]) -> None:
        self.logs.setdefault(len(log), []).append(log)
        self.saved.add(tuple(log))
        self.next = len(log)

    def began(self, _: None) -> None:
        """The save before is whole; the one that was begun, if any, is under way."""
        if self.under_way is not None:
            self.sure = {*sorted({*self.sure, self.under_way})[-trainer.KEEP :]}
        self.under_way, self.next = self.next, None

    def failed(self, step: int) -> None:
        assert step == self.under_way
        self.under_way = None
        del self.logs[step]


class Reader(threading.Thread):
    """Restores the newest again and again, beside the run."""

    def __init__(self, folder: Path):
        super().__init__()
        self.folder, self.ends, self.error = folder, threading.Event(), None
        self.logs: set[tuple[int, ...]] = set()

    def run(self) -> None:
        like = trainer.tree_of(trainer.params_after([]), [])
        mesh = emulate(trainer.WORKERS)
        try:
            with Checkpoints(self.folder, mesh, read_only=True) as checkpoints:
                while not self.ends.wait(0.01):
                    if checkpoints.steps:
                        _, log = trainer.read(*checkpoints.restore(like))
                        self.logs.add(tuple(log))
        except Exception as error:  # the test raises it
            self.error = error


def history(folder: Path, seed: int) -> Books:
    draw, books = random.Random(seed), Books()
    readers = [Reader(folder / "run") for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for life in range(LIVES):
            lives(folder, seed, life, draw, books)
    finally:
        for reader in readers:
            reader.ends.set()
            reader.join()
    for reader in readers:
        assert reader.error is None, reader.error
        assert reader.logs <= books.saved
        books.seen["read"] += len(reader.logs)
    return books


def lives(
    folder: Path, seed: int, life: int, draw: random.Random, books: Books
) -> None:
    """One life; it is killed by the clock, before it touches a file, or never."""
    journal = folder / f"life-{life}"
    touch = draw.choice([0, *draw.sample(range(1, 150), 2)]) if life < LIVES - 1 else 0
    args = (folder / "run", journal, seed, life, touch)
    run = START.Process(target=trainer.live, args=args)
    run.start()
    if not touch and life < LIVES - 1:
        run.join(draw.uniform(0.1, 0.8))
        run.kill()
    run.join(120)
    assert run.exitcode in (0, -signal.SIGKILL)
    books.seen["killed"] += run.exitcode != 0
    books.enter(journal)


@pytest.mark.long
@pytest.mark.few(3)
@pytest.mark.parametrize("seed", range(200))
def test_a_resume_is_the_run_that_was_never_stopped(seed, tmp_path):
    START.set_forkserver_preload(["tests.checkpoint.trainer"])
    seen = history(tmp_path, seed).seen
    print(seen)  # pytest -s shows it
    assert seen["read"]


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(12))
def test_processes_resume_as_if_never_stopped(seed, tmp_path):
    """One of two is killed before it touches a file, and the other is ended."""
    draw, books = random.Random(seed), Books()
    for life in range(TOGETHER):
        touch, who = draw.randrange(1, 25), draw.randrange(2)
        numbers = (seed, life, touch if life < TOGETHER - 1 else 0, who)
        ended, said = launched("tests.checkpoint.trainer", tmp_path, *numbers, grace=1)
        killed = "ended by SIGKILL" in ended.why
        assert killed or ended.status == 0, said
        books.seen["killed"] += killed
        books.enter(tmp_path / f"life-{life}-of-0")
    print(books.seen)
    assert books.seen["killed"]

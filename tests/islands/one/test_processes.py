"""Real processes that are frozen, doubled, lied to, and short of room.

Nothing is timed: each test waits until the log, or what a process says, has what must
come, and fails if a process ends that should not.
"""

import os
import re
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from relaxjax.islands import Folder
from relaxjax.islands.carriers._open import CARRIER
from relaxjax.islands.common import _log as log
from relaxjax.islands.common._names import NAME
from relaxjax.islands.common._syncer import newest_lease
from relaxjax.islands.replayed._replay import replay

pytestmark = pytest.mark.slow
SCRIPT = """
import numpy as np
from itertools import count
from relaxjax import islands
with islands.join({"a": np.zeros(6, np.float32), "b": np.zeros(3, np.float32)},
                  sync_every=4, fragments=2, grace=0.2, keep=True,
                  lost_after=1.0, poll=0.01, pace=50.0) as island:
    params = island.params
    for step in count(1):
        params = {k: x + 1 for k, x in params.items()}
        params = island.exchange(params, tokens=3)
        if step % 10 == 0:
            print("step", step)
"""


class Process:
    """An island, and what it has said."""

    def __init__(self, folder: Folder, name: str, script: str = SCRIPT):
        env = os.environ | {CARRIER: f"folder:{folder.place}", NAME: name}
        self.name, self.lines = name, list[str]()
        self.popen = subprocess.Popen(
            [sys.executable, "-u", "-c", script],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.popen.stdout is not None
        with self.popen.stdout as stream:
            self.lines.extend(stream)

    def said(self, words: str) -> bool:
        return any(words in line for line in list(self.lines))

    @property
    def step(self) -> int:
        steps = [line.split()[1] for line in list(self.lines) if line[:4] == "step"]
        return int(steps[-1]) if steps else 0

    def end(self) -> int:
        self.popen.kill()
        code = self.popen.wait()
        self._reader.join()
        return code


class Crew:
    """Processes of a run in a folder."""

    def __init__(self, place: Any):
        self.folder, self.processes = Folder(place), dict[str, Process]()
        self._tick = threading.Event()

    def start(self, name: str, script: str = SCRIPT) -> Process:
        process = Process(self.folder, name, script)
        self.processes[name] = process
        return process

    def until(self, holds: Callable[[], Any]) -> None:
        """Waits; nobody may end meanwhile."""
        while not holds():
            self._tick.wait(0.02)
            for process in self.processes.values():
                ended = process.popen.poll() is not None
                assert not ended, "".join(process.lines)

    def newest(self) -> int:
        return log.newest(self.folder)

    def contributors(self, version: int) -> list[str]:
        record, _ = log.read(self.folder, version)
        return [c["island"] for c in record["contributions"]]

    def merges(self, name: str, after: int) -> bool:
        """Whether a merge after this version has a contribution of an island."""
        return any(
            name in self.contributors(v) for v in range(after + 1, self.newest() + 1)
        )

    def incarnations(self, name: str) -> list[int]:
        """Whose contributions were merged under a name, merge by merge."""
        lines = [log.read(self.folder, v)[0] for v in range(1, self.newest() + 1)]
        parts = [c for line in lines for c in line["contributions"]]
        return [c["incarnation"] for c in parts if c["island"] == name]

    def check(self) -> None:
        """Each merge is that of its contributions, and none has been merged twice."""
        done = list(replay(self.folder))
        assert done
        assert [m for m in done if m.fault or not m.is_equal] == []
        keys = [
            (c["island"], c["incarnation"], r["fragment"], c["base"])
            for v in range(1, len(done) + 1)
            for r in [log.read(self.folder, v)[0]]
            for c in r["contributions"]
        ]
        assert len(keys) == len(set(keys))


@pytest.fixture
def crew(tmp_path):
    crew = Crew(tmp_path / "run")
    yield crew
    for process in crew.processes.values():
        process.end()


def test_a_frozen_island_is_left_out_and_comes_back(crew):
    """The one that holds the lease, for longer than `grace` and `lost_after`."""
    for name in "abc":
        crew.start(name)
    crew.until(lambda: all(crew.merges(name, 0) for name in "abc"))
    _, holder = newest_lease(crew.folder, print)
    assert holder is not None
    frozen = crew.processes[holder.name]
    frozen.popen.send_signal(signal.SIGSTOP)
    crew.until(lambda: newest_lease(crew.folder, print)[1] != holder)
    at = crew.newest() + 1  # what it had offered may be in the next one
    crew.until(lambda: crew.newest() > at + 8)
    others = sorted(set("abc") - {holder.name})
    for version in range(at + 1, at + 9):
        assert set(crew.contributors(version)) <= set(others)
    assert all(crew.merges(name, at) for name in others)
    frozen.popen.send_signal(signal.SIGCONT)
    crew.until(lambda: crew.merges(holder.name, at + 8))
    for process in crew.processes.values():
        process.end()
    crew.check()


def test_of_two_processes_with_one_name_the_older_is_refused(crew):
    older = crew.start("twin")
    crew.start("other")
    crew.until(lambda: crew.merges("twin", 0))
    del crew.processes["twin"]
    newer = crew.start("twin")
    assert older.popen.wait() == 76
    older.end()
    refused = re.search(
        r"islands: \[twin\] incarnation 2 of 'twin' \(.*, process (\d+)\) has joined",
        "".join(older.lines),
    )
    assert refused
    assert int(refused[1]) == newer.popen.pid
    crew.until(lambda: crew.incarnations("twin")[-3:] == [2, 2, 2])
    for process in crew.processes.values():
        process.end()
    assert crew.incarnations("twin") == sorted(crew.incarnations("twin"))
    crew.check()


def test_damaged_and_foreign_files_are_named_and_the_run_goes_on(crew):
    for name in "ab":
        crew.start(name)
    crew.until(lambda: crew.newest() > 2)
    version = crew.newest() + 100
    whole = crew.folder.read(f"log/{1:08d}")
    offers = f"offers/{version:08d}"
    truncated = f"{offers}/b.000001"
    crew.folder.create(truncated, b"relaxjax-islands 1 00ff 900\n" + whole[:50])
    crew.folder.create(f"{offers}/notes.txt", b"hello")
    crew.folder.create("members/readme.txt", b"hello")
    crew.until(lambda: crew.newest() > version + 2)
    record, _ = log.read(crew.folder, version)
    refused = dict(record["refused"])
    assert "bytes instead of 900" in refused[truncated]
    assert "name is not that of a contribution" in refused[f"{offers}/notes.txt"]
    said = [p.said for p in crew.processes.values()]
    for words in (truncated, "notes.txt is refused", "readme.txt is no file of a run"):
        assert any(has(words) for has in said)
    crew.until(lambda: crew.merges("b", version))
    for process in crew.processes.values():
        process.end()
    crew.check()


def test_without_room_islands_train_on_and_merge_again_later(crew):
    """No process may write a byte to a file, as on a full disk, until it may again."""

    def limit(nbytes: int) -> None:
        for process in crew.processes.values():
            hard = resource.prlimit(process.popen.pid, resource.RLIMIT_FSIZE)[1]
            resource.prlimit(process.popen.pid, resource.RLIMIT_FSIZE, (nbytes, hard))

    two = [crew.start(name) for name in "ab"]
    crew.until(lambda: all(crew.merges(name, 0) for name in "ab"))
    limit(0)
    crew.until(lambda: all(p.said("too large; training goes on") for p in two))
    at, steps = crew.newest(), [p.step for p in two]
    crew.until(lambda: all(p.step >= s + 100 for p, s in zip(two, steps, strict=True)))
    assert crew.newest() == at
    limit(resource.RLIM_INFINITY)
    crew.until(lambda: all(p.said("the carrier works again") for p in two))
    crew.until(lambda: all(crew.merges(name, at) for name in "ab"))
    for process in two:
        process.end()
    crew.check()


def moved(processes: list[Process]) -> tuple[int, int]:
    """Bytes that all have read and written, as the kernel counts their calls."""
    total = {"rchar": 0, "wchar": 0}
    for process in processes:
        text = Path(f"/proc/{process.popen.pid}/io").read_text()
        found = dict(line.split(": ") for line in text.splitlines())
        total = {key: n + int(found[key]) for key, n in total.items()}
    return total["rchar"], total["wchar"]


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_bytes_are_those_that_the_page_states(crew):
    """Three islands write 3 contributions, a model and its momentum; five are read."""
    floats, merges = 200_000, 30
    script = SCRIPT.replace("np.zeros(6,", f"np.zeros({floats},")
    script = script.replace("np.zeros(3,", f"np.zeros({floats},")
    processes = [crew.start(name, script) for name in "abc"]
    crew.until(
        lambda: crew.newest() >= 6 and len(crew.contributors(crew.newest())) == 3
    )
    first, (read, written) = crew.newest(), moved(processes)
    crew.until(lambda: crew.newest() >= first + merges)
    last, (read_then, written_then) = crew.newest(), moved(processes)
    full = [len(crew.contributors(v)) == 3 for v in range(first + 1, last + 1)]
    assert sum(full) >= 0.9 * len(full)
    stated = 5 * 4 * floats * (last - first)
    assert written_then - written == pytest.approx(stated, rel=0.1)
    assert read_then - read == pytest.approx(stated, rel=0.1)

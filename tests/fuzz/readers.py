"""Readers of what others have written: sound files, how they are damaged and read.

Readers whose damage has laws of its own stand elsewhere: checkpoints (`test_files.py`),
programs' texts (`test_programs.py`), task files and graphs (`test_sources.py`), command
lines (`test_commands.py`), and islands that go on beside what is foreign
(`test_islands.py`, `test_foreign_files.py`).
"""

import fcntl
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from relaxjax import compare, emulate, golden, islands, plan
from relaxjax.checkpoint import Checkpoints
from relaxjax.cli import _app
from relaxjax.cli.printed import _islands_page
from relaxjax.compare.study import _study_file
from relaxjax.hosts import _messages as messages
from relaxjax.hosts._devices import assigned, line
from relaxjax.hosts._launchers import Layout
from relaxjax.hosts._members import Member, Report, problem
from relaxjax.islands.common import _status
from tests.compare import studies
from tests.fuzz.mutate import damaged
from tests.fuzz.test_foreign_files import other_bytes
from tests.islands.world import SETTINGS, World

Files = dict[str, bytes]
MEETING, NUMBER = "report 1", "0" * 32
LINE = "line"  # a message, as if it were a file
ASKED = {"workers": 8, "steps": 400, "grid": {"rank": [1, 2]}}
OF_RUNS = ("run.json", "log/", "members/", "lease/", "offers/", "state/")


class Reader(NamedTuple):
    """How files are made, read and damaged.

    A refusal has one of the words in `named`, or else the damaged file's own name.
    """

    files: Callable[[], Files]
    read: Callable[[Path], Any]
    damage: Callable[[bytes, random.Random], bytes] = damaged
    named: tuple[str, ...] = ()


def vectors() -> Files:
    path = Path(golden.__file__).with_name("vectors.json")
    whole = json.loads(path.read_text())
    few = whole | {"vectors": whole["vectors"][:3]}
    return {"vectors.json": json.dumps(few).encode()}


def network() -> Files:
    link = {"latency": 1e-4, "bandwidth": 1e9}
    links = {"link": link, "inside": link, "psum": link}
    codec = {"": 1e9, "sign": 2e9}
    values = {"workers": 8, "per_host": 4, "codec": codec, **links}
    return {"network.json": json.dumps(values).encode()}


def planned(folder: Path) -> None:
    """What `relaxjax plan` makes of a network; what it refuses is an error."""
    line = f"plan --params=1e6 --compute-ms=5 --network={folder / 'network.json'}"
    result = CliRunner().invoke(_app.app, line.split())
    if result.exit_code == 2:
        raise ValueError(result.stderr)
    if result.exception is not None:
        raise result.exception


def study() -> Files:
    found = studies.study()
    lines = [json.dumps(record) + "\n" for record in studies.records(found)]
    files = {"study.json": json.dumps(found), "results.jsonl": "".join(lines)}
    return {name: text.encode() for name, text in files.items()}


def read_study(folder: Path) -> None:
    results = compare.Results(folder)
    results.records()
    results.table()


def asked() -> Files:
    used = {"asked": ASKED, "compute_seconds": 0.1, "command": "relaxjax compare"}
    return {"study.json": json.dumps(studies.study() | used).encode()}


def owner() -> Files:
    return {"writer.lock": json.dumps({"host": "h", "pid": 7, "since": 1.5}).encode()}


def kept_out(folder: Path) -> None:
    """A second writer is told who the first one is, as far as that can be read."""
    with (folder / "writer.lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(ValueError, match="writes checkpoints into") as error:
            Checkpoints(folder, emulate(1))
    assert str(error.value).isprintable()


def report() -> Files:
    """The report of process 1, as it comes over the wire."""
    member = Member(1, "node1", "10.0.0.1", 77, (0, 1), "devices 0-1")
    said = Report(member, 2, {"jax": "0.12"}, Layout(1, 2, 4, False))
    content = {"report": said, "nonce": NUMBER}
    return {LINE: messages.sealed("", MEETING, content).strip()}


def heard(folder: Path) -> None:
    """What process 0 makes of a report."""
    content = messages.opened("", MEETING, (folder / LINE).read_bytes())
    other, _ = messages.report_of(content)
    first = Report(Member(0, "node1", "10.0.0.1", 76), 2, {"jax": "0.12"})
    if wrong := problem([first, other]):
        raise ValueError(wrong)
    members = assigned([first, other])
    line(members, by_hand=False)
    messages.sealed("", MEETING, messages.answered(members))


def answer() -> Files:
    members = [Member(i, "node1", "10.0.0.1", 76 + i, (i,), "") for i in range(2)]
    content = messages.answered(tuple(members))
    return {LINE: messages.sealed("", MEETING, content).strip()}


def told(folder: Path) -> None:
    """What another process makes of process 0's answer."""
    content = messages.opened("", MEETING, (folder / LINE).read_bytes())
    found = messages.answer_of(content, 2)
    if not isinstance(found, Exception):
        line(found, by_hand=True)


def sealed_again(raw: bytes, rng: random.Random) -> bytes:
    """Another content under a right seal, or a damaged line."""
    body = damaged(raw.partition(b" ")[2], rng)
    mac = messages._mac("", MEETING, body).encode()
    return damaged(raw, rng) if rng.random() < 0.2 else mac + b" " + body


def run_of_islands() -> Files:
    """Three islands after some merges, with all that they have contributed."""
    world = World(SETTINGS._replace(keep=True))
    processes = [world.process(name) for name in "abc"]
    for salt in range(4):
        for p in processes:
            p.adopt()
            p.offer(8, 2, salt)
        for p in processes:
            world.now += 1
            p.turn()
    return dict(world.store.files)


def looked_at(folder: Path) -> None:
    """What `relaxjax islands status` shows."""
    now = _status.status(islands.Folder(folder), sleep=lambda seconds: None)
    assert _islands_page.last_merge(now).isprintable()
    for row in now.rows:
        assert all(cell.isprintable() for cell in _islands_page.cells(row))
    _islands_page.page(now, str(folder))


def merged_again(folder: Path) -> None:
    """What `relaxjax islands replay` does; a fault is an error."""
    for merge in islands.replay(islands.Folder(folder)):
        if merge.fault:
            raise ValueError(merge.fault)


READERS = {
    "vectors": Reader(vectors, lambda at: golden.load(at / "vectors.json")),
    "network": Reader(network, lambda at: plan.Network.load(at / "network.json")),
    "plan": Reader(network, planned, named=("plan: ", "--")),
    "study": Reader(study, read_study),
    "study again": Reader(
        asked,
        lambda at: _study_file.study_there(at, ASKED),
        named=("holds a study of other settings",),
    ),
    "lock": Reader(owner, kept_out),
    "report": Reader(report, heard, sealed_again, named=("",)),
    "answer": Reader(answer, told, sealed_again, named=("",)),
    "greeting": Reader(
        lambda: {LINE: f"{messages.HELLO} {NUMBER}".encode()},
        lambda at: messages.greeted((at / LINE).read_bytes()),
        named=("no greeting",),
    ),
    "status": Reader(run_of_islands, looked_at, other_bytes, OF_RUNS),
    "replay": Reader(run_of_islands, merged_again, other_bytes, OF_RUNS),
}

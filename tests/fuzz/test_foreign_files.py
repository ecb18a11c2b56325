"""Anything under any name in a run's folder: no island ends or hangs, and it is named.

Each kind of file is replaced by other bytes, by a record under a right digest that says
something else, or by what is no file: a folder, a link, a loop of links, a pipe, a file
of a terabyte; and foreign names lie beside it. Three islands go on for some rounds, and
a fourth one joins.
"""

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from relaxjax.islands import DamagedFile
from relaxjax.islands.carriers._folder import Folder
from relaxjax.islands.carriers._foreign import SMALL, contents, plain
from relaxjax.islands.common import _files as files
from relaxjax.islands.common import _log as log
from tests.fuzz.bounds import bounded
from tests.fuzz.mutate import changed, damaged
from tests.islands.world import LOST_AFTER, Process, World

FEW, MANY = 17, 5_000  # of each of six kinds
FOREIGN = (
    *("notes.txt", "20261127", "99999999", "\x1b[2Jx", "\xb2", "\udc80", "-1"),
    *("\u0660" * 7 + "\u0669", "c." + "\u0660" * 5 + "\u0669"),  # Arabic digits
    *("c.000009", "c.000009.beat", "c." + "9" * 200, "9" * 200),
)
KINDS: dict[str, Callable[[World], str]] = {
    "offer": lambda world: f"offers/{log.newest(world.store) + 1:08d}/c.000001",
    "lease": lambda world: f"lease/{world.store.names('lease')[-1]}",
    "beat": lambda world: "members/c.000001.beat",
    "line": lambda world: log.file_of(log.newest(world.store)),
    "member": lambda world: "members/c.000001",
    "run.json": lambda world: "run.json",
}


def begun(folder: Path) -> tuple[World, list[Process]]:
    """Three islands after a merge, and offers under way."""
    world = World(store=Folder(folder))
    processes = [world.process(name) for name in "abc"]
    for salt in range(4):
        one_round(processes, salt)
    assert log.newest(world.store) >= 2
    for p in processes:
        p.adopt()
        p.offer(8, 2, 3)
    return world, processes


def one_round(processes: list[Process], salt: int) -> None:
    for p in processes:
        p.adopt()
        p.offer(8, 2, salt)
    for p in processes:
        p.world.now += LOST_AFTER / 10
        p.turn()


def no_file(path: Path, rng: random.Random) -> None:
    """Something under this name that is not a file to be read."""
    os.unlink(path)
    how = rng.randrange(5)
    if how == 0:
        path.mkdir()
    elif how == 1:
        path.symlink_to(path.parent.parent / "run.json")
    elif how == 2:
        path.symlink_to(path.name)
    elif how == 3:
        os.mkfifo(path)
    else:
        with path.open("wb") as file:
            file.truncate(1 << 40)


def other_bytes(raw: bytes, rng: random.Random) -> bytes:
    """Bytes that are damaged, or say something else under a right digest."""
    if rng.random() < 0.1:
        deep = rng.choice((b"[", b'{"a":')) * 100_000
        return rng.choice((deep, b"1" * 5000, b"NaN", b'{"digest":1e999}', b""))
    try:
        if raw.startswith(b"relaxjax"):
            meta, arrays = files.unpack("x", raw)
            return files.pack(odd(meta, rng), arrays)
        return files.seal(odd(files.unseal("x", raw), rng))
    except (DamagedFile, TypeError, ValueError):  # a beat; infinity
        return damaged(raw, rng)


def odd(body: Any, rng: random.Random) -> Any:
    """Another value somewhere, 10^400 among others."""
    if rng.random() < 0.3:
        key = rng.choice(sorted(body))
        return {**body, key: rng.choice((10**400, -(10**400), 10**21, "\x1b[2J", {}))}
    return changed(body, rng)


def put(world: World, kind: str, rng: random.Random) -> str:
    """One wrong thing of a kind; the name of what is no file of a run, or ""."""
    path = Path(world.store.place, KINDS[kind](world))
    how = rng.random()
    if how < 0.25 and kind != "run.json":
        strange = Path(path.parent, rng.choice(FOREIGN))
        strange.write_bytes(what := rng.choice((b"notes", path.read_bytes())))
        is_one = what != b"notes" or strange.suffix == ".beat"  # nobody reads that beat
        return "" if is_one else plain(strange.name)
    if how < 0.5:
        no_file(path, rng)
    else:
        raw = other_bytes(path.read_bytes(), rng)
        os.unlink(path)
        path.write_bytes(raw)
    name = f"{path.parent.name}/{path.name}"
    return name if kind in READ and is_damaged(world, kind, path) else ""


READ: dict[str, Callable[[World, str], Any]] = {
    "offer": lambda world, name: files.unpack("x", contents(world.store, name, SMALL)),
    "lease": lambda world, name: files.unseal("x", contents(world.store, name, SMALL)),
    "beat": lambda world, name: contents(world.store, name, SMALL),
    "line": lambda world, name: log.read(world.store, int(name[4:])),
    "member": lambda world, name: files.unseal("x", contents(world.store, name, SMALL)),
}


def is_damaged(world: World, kind: str, path: Path) -> bool:
    """Whether who reads it is told."""
    try:
        READ[kind](world, str(path.relative_to(world.store.place)))
    except (DamagedFile, OSError):
        return True
    return False


def joined(world: World, kind: str) -> list[Process]:
    """A fourth island, which only `run.json` may keep out, by name."""
    try:
        return [world.process("d")]
    except (DamagedFile, ValueError) as error:
        why = str(error)
    assert kind == "run.json", why
    assert "run.json is damaged" in why or "has begun otherwise" in why
    assert why.isprintable()
    return []


@pytest.mark.few(8)
@pytest.mark.long
@pytest.mark.parametrize(
    "count",
    [
        FEW,
        pytest.param(MANY // 10, marks=pytest.mark.slow),
        pytest.param(MANY, marks=[pytest.mark.slow, pytest.mark.every]),
    ],
    ids=["few", "more", "many"],
)
@pytest.mark.parametrize("kind", KINDS)
def test_no_foreign_file_ends_a_run(kind, count, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    monkeypatch.setattr(
        "relaxjax.islands.common._store_channel.probe", lambda store, own: None
    )
    rng, folder = random.Random(0), tmp_path / "run"
    for _ in range(count):
        with bounded():
            goes_on(folder, kind, rng)
        shutil.rmtree(folder)


def goes_on(folder: Path, kind: str, rng: random.Random) -> None:
    """One wrong thing in a new run, which merges on, and says each thing once."""
    world, processes = begun(folder)
    before = log.newest(world.store)
    foreign = put(world, kind, rng)
    everyone = [*processes, *joined(world, kind)]
    if rng.random() < 0.5:  # the leader is gone
        world.now += 2 * LOST_AFTER
        everyone = everyone[1:]
    for salt in range(4, 8):
        one_round(everyone, salt)
    assert log.newest(world.store) > before + 1
    for said in (p.said for p in everyone):
        assert all(words.isprintable() for words in said)
        assert len(said) == len(set(said)), said
        words = [one for one in said if not one.endswith("it is written again")]
        named = Counter(one.partition(" is damaged")[0] for one in words)
        assert not words or max(named.values()) == 1, said
    assert any(foreign in words for p in everyone for words in p.said) or not foreign

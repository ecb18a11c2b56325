"""Folders of islands with damaged, foreign and lying files: refused in words, or left.

A file may be cut, changed, replaced by another of the same run, or be a record under a
right digest that says something else. Whatever it is, a process ends in an error that
names a file, or goes on.
"""

import json
import random

import pytest

from relaxjax.islands import DamagedFile, Superseded
from relaxjax.islands.common import _files as files
from relaxjax.islands.common import _log as log
from tests.fuzz.mutate import changed, damaged, flipped
from tests.islands.world import LOST_AFTER, Process, World

FEW, MANY = 60, 10_000
NAMED = (
    *("run.json", "members/", "lease/", "offers/", "memory/state", "log/"),
    *("has begun otherwise", "has joined"),
)


def merged() -> tuple[World, list[Process]]:
    """Three islands after some merges, and offers under way."""
    world = World()
    processes = [world.process(name) for name in "abc"]
    for salt in range(4):
        one_round(processes, salt)
    for p in processes:
        p.adopt()
        p.offer(8, 2, 9)
    return world, processes


def one_round(processes: list[Process], salt: int) -> None:
    for p in processes:
        p.adopt()
        p.offer(8, 2, salt)
    for p in processes:
        p.world.now += 1
        p.turn()


def picked(world: World, rng: random.Random) -> str:
    """A file, of any folder alike."""
    folders: dict[str, list[str]] = {}
    for name in sorted(world.store.files):
        folders.setdefault(name.partition("/")[0], []).append(name)
    return rng.choice(folders[rng.choice(sorted(folders))])


def wrong(name: str, world: World, rng: random.Random) -> bytes:
    """Other bytes for a file."""
    raw = world.store.files[name]
    how = rng.random()
    if how < 0.2:
        return world.store.files[rng.choice(sorted(world.store.files))]
    try:
        body = files.unseal(name, raw)
    except DamagedFile:  # arrays
        return flipped(raw, rng) if how < 0.8 else damaged(raw, rng)
    if how < 0.5:
        return damaged(raw, rng)
    other = changed(body, rng)
    try:
        return files.seal(other)
    except (TypeError, ValueError):  # no dict, or infinity
        return json.dumps(other).encode()


def refusal(world: World, processes: list[Process]) -> str:
    """What ends a newcomer's and everybody's further rounds; "" if nothing does."""
    try:
        late = world.process("d")
        for salt in range(3):
            one_round([*processes, late], 10 + salt)
            world.now += LOST_AFTER
    except (Superseded, DamagedFile, ValueError) as error:
        return str(error)
    return ""


def require_offered(world: World, since: int) -> None:
    """What has been merged is what somebody offered for that merge, unchanged."""
    for version in range(since + 1, log.newest(world.store) + 1):
        record, _ = log.read(world.store, version)
        for c in record["contributions"]:
            member, offer = world.offers[c["sha256"]]
            assert (c["island"], c["incarnation"]) == member
            assert (offer.version, offer.tokens) == (version, c["tokens"])


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
def test_a_folder_is_refused_by_name_or_the_run_goes_on(count):
    rng, went_on = random.Random(0), 0
    for _ in range(count):
        world, processes = merged()
        names = [picked(world, rng) for _ in range(2)]
        for name in names:
            world.store.files[name] = wrong(name, world, rng)
        before = log.newest(world.store)
        refused = refusal(world, processes)
        if refused:
            assert any(part in refused for part in NAMED), (names, refused)
        else:
            require_offered(world, before)
            went_on += log.newest(world.store) > before
    assert went_on > 0.5 * count

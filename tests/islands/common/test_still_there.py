"""A run's folder that was removed is not filled again from the middle of a run."""

from typing import NamedTuple

import pytest

from relaxjax import islands
from relaxjax.islands.carriers._store import FILE
from relaxjax.islands.common import _log as log
from relaxjax.islands.common import _store_channel
from tests.islands.world import LOST_AFTER, Process, World


class Run(NamedTuple):
    world: World
    leader: Process
    other: Process


@pytest.fixture
def run(monkeypatch):
    """Two islands, some merges, and contributions to the next one."""
    monkeypatch.setattr(_store_channel, "probe", lambda store, own: None)
    world = World()
    run = Run(world, world.process("a"), world.process("b"))
    for _ in range(3):
        give(run)
        run.leader.turn()
    give(run)
    assert log.newest(world.store) == 2
    return run


def give(run):
    for process in run.leader, run.other:
        process.adopt()
        process.offer(8, 2, 1)


ACTS = {
    "adopts": lambda process: process.adopt(),
    "merges": lambda process: process.turn(),
    "contributes": lambda process: process.offer(8, 2, 3),
}


@pytest.mark.parametrize("does", ACTS)
@pytest.mark.parametrize("who", ["leader", "other"])
def test_nothing_is_written_where_the_run_was(run, who, does):
    process = getattr(run, who)
    run.world.store.files.clear()
    run.world.now += LOST_AFTER / 4  # a heartbeat is due
    with pytest.raises(islands.RunGone, match=r"in memory is gone: .* merge 2,"):
        ACTS[does](process)
    process.channel.leave()
    assert not run.world.store.files
    assert len([words for words in process.said if "is gone" in words]) == 1


def test_settings_that_were_removed_are_written_again(run):
    was = run.world.store.files.pop(FILE)
    run.leader.turn()
    assert run.world.store.files[FILE] == was
    run.world.check()
    assert log.newest(run.world.store) == 3


@pytest.mark.parametrize("who", ["leader", "other"])
def test_a_line_that_was_removed_is_written_again_and_merges_go_on(run, who):
    """The last one, by whoever looks first."""
    name = log.file_of(2)
    was = run.world.store.files.pop(name)
    run.world.now += LOST_AFTER / 4
    getattr(run, who).adopt()
    assert run.other.version == 2
    run.leader.turn()
    assert run.world.store.files[name] == was
    run.world.check()
    assert log.newest(run.world.store) == 3

"""What a leader does while it waits."""

from collections import Counter
from typing import Any

from tests.islands.common.test_files import merged_once, round_of, written
from tests.islands.world import LOST_AFTER, World


def idle(world: World, processes: list[Any], times: int) -> int:
    """How often a leader that waits for so many times `lost_after` reads an anchor."""
    for p in processes:
        p.adopt()
    reads: Counter[str] = Counter()
    world.store.before = lambda verb, name: reads.update([name] * (verb == "read"))
    for _ in range(2 * times):
        world.now += LOST_AFTER / 2
        for p in processes:
            p.adopt()
            p.turn()
    world.store.before = lambda verb, name: None
    return max(n for name, n in reads.items() if name.endswith(".anchor"))


def test_a_leader_that_waits_reads_the_model_more_and_more_rarely():
    """To mend it: after 1, 3, 7, .. times `lost_after`; after a merge likewise."""
    world = World()
    processes = merged_once(world)
    assert idle(world, processes, 100) <= 6
    round_of(processes, 1)
    world.now += 2
    processes[0].turn()
    world.check()
    assert world.checked == 2
    world.store.files[written(world, "f0.anchor")] = b"garbage"
    assert idle(world, processes, 2) >= 1
    assert any("it is written again" in words for words in processes[0].said)

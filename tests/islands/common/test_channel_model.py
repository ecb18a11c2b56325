"""Any interleaving of joins, contributions, merges, crashes and rejoins.

A store in memory and a clock by hand: nothing sleeps. What must hold is in `World`:
versions have no gaps and do not change, one version is the same bits for everybody,
each merge is what a person would compute from its contributions, and nothing is merged
twice.
"""

import functools
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from relaxjax.islands import Superseded
from relaxjax.islands.common import _log as log
from relaxjax.islands.common import _offers as offers
from relaxjax.islands.common import _store_channel
from relaxjax.islands.common import _syncer as syncer
from relaxjax.islands.common._bounds import MERGES
from relaxjax.islands.common._common_model import CommonModel
from relaxjax.islands.common._inbox import Inbox
from relaxjax.islands.common._members import newest
from relaxjax.islands.common._merge import first_outer
from relaxjax.islands.common._status import status
from relaxjax.islands.common._syncer import Syncer
from tests.islands.world import LOST_AFTER, SETTINGS, Crash, Process, World

NAMES = ["a", "b", "c"]
WHO = st.integers(0, 20)
AT = st.integers(0, 25) | st.sampled_from(["log", "state", "lease"])


@pytest.fixture(autouse=True)
def no_race(monkeypatch):
    """The start-up probe, which has tests of its own, costs threads."""
    monkeypatch.setattr(_store_channel, "probe", lambda store, own: None)


class Islands(RuleBasedStateMachine):
    """Processes by number; a process of a name that has a newer one may still act."""

    sleeps_long = False  # while files that a turn has listed are removed

    def __init__(self, remembered: bool = False, **how: Any) -> None:
        super().__init__()
        self.world = World(remembered=remembered, **how)
        self.processes = list[Process]()
        self.salt = 0
        for name in NAMES:
            self.join(name)

    def act(self, process: Process, what: Any) -> None:
        """Does it; the process may turn out to be superseded, or the carrier fail."""
        try:
            what()
        except Superseded:
            name, incarnation = process.member
            assert newest(self.world.store)[name] > incarnation
            self.forget(process)
        except OSError:
            assert self.world.store.fault

    def forget(self, process: Process) -> None:
        self.processes = [p for p in self.processes if p is not process]

    def pick(self, who: int) -> Process:
        return self.processes[who % len(self.processes)]

    @precondition(lambda self: len(self.processes) < 6)
    @rule(name=st.sampled_from(NAMES))
    def join(self, name: str) -> None:
        try:
            self.processes.append(self.world.process(name))
        except OSError:
            assert self.world.store.fault

    @precondition(lambda self: self.processes)
    @rule(
        who=WHO,
        tokens=st.integers(1, 900),
        steps=st.integers(1, 9),
        ahead=st.booleans(),
    )
    def offer(self, who: int, tokens: int, steps: int, ahead: bool) -> None:
        process = self.pick(who)
        self.salt += 1
        self.act(process, lambda: process.offer(tokens, steps, self.salt, ahead))

    @precondition(lambda self: self.processes)
    @rule(who=WHO)
    def adopt(self, who: int) -> None:
        process = self.pick(who)
        self.act(process, process.adopt)

    @precondition(lambda self: self.processes)
    @rule(who=WHO)
    def turn(self, who: int) -> None:
        process = self.pick(who)
        self.act(process, process.turn)

    @rule(seconds=st.sampled_from([0.5, 1.5, 5.0]))
    def wait(self, seconds: float) -> None:
        self.world.now += seconds

    @precondition(lambda self: self.processes)
    @rule()
    def everybody(self) -> None:
        """A quiet time: all take over, contribute and turn."""
        self.give()
        for process in list(self.processes) * 2:
            self.act(process, process.turn)

    @precondition(lambda self: self.processes)
    @rule(who=WHO, at=AT, what=st.sampled_from(["adopt", "turn"]))
    def crash(self, who: int, at: int | str, what: str) -> None:
        """The process is gone at one of its operations."""
        process = self.pick(who)

        def gone() -> None:
            raise Crash

        self.interrupted(process, at, what, gone)
        self.forget(process)

    @precondition(lambda self: len(self.processes) > 1)
    @rule(who=WHO, by=WHO, at=AT, adopts=st.booleans())
    def frozen(self, who: int, by: int, at: int | str, adopts: bool) -> None:
        """A turn is stopped in the middle for long, and others merge meanwhile."""
        process, other = self.pick(who), self.pick(by)
        self.give()

        def meanwhile() -> None:
            self.world.now += 10
            for _ in range(3 if other is not process else 0):
                self.act(other, other.adopt if adopts else other.turn)
                self.act(other, other.turn)
            self.world.check()

        self.act(process, lambda: self.interrupted(process, at, "turn", meanwhile))

    @precondition(lambda self: self.processes)
    @rule(who=WHO)
    def lag(self, who: int) -> None:
        """One sees nothing of two merges, and contributes to the third."""
        late = self.pick(who)
        for _ in range(2):
            self.give(but=late)
            self.world.now += 2
            for process in self.processes * 2:
                if process is not late:
                    self.act(process, process.turn)
        self.give(but=late)
        self.act(late, lambda: late.offer(9, 3, self.salt, ahead=True))

    def give(self, but: Process | None = None) -> None:
        """All take over and contribute."""
        for process in [p for p in self.processes if p is not but]:
            self.salt += 1
            self.act(process, process.adopt)
            give = functools.partial(process.offer, 8, 2, self.salt)
            self.act(process, give)

    def interrupted(self, process: Process, at: int | str, what: str, by: Any) -> None:
        """At an operation by number, or where a name in a folder is created."""
        store, count = self.world.store, [0]

        def before(verb: str, name: str) -> None:
            count[0] += 1
            here = verb == "create" and name.partition("/")[0] == at
            if count[0] - 1 == at or here:
                store.before = lambda verb, name: None
                by()

        store.before = before
        try:
            getattr(process, what)()
        except (Crash, Superseded):
            pass
        except FileNotFoundError:  # the next turn is another try
            assert store.fault or self.sleeps_long
        except OSError:
            assert store.fault
        finally:
            store.before = lambda verb, name: None

    @rule(fault=st.sampled_from(["", "", "full", "deaf", "late"]))
    def carrier(self, fault: str) -> None:
        self.world.store.fault = fault
        self.world.arrive()

    @invariant()
    def holds(self) -> None:
        self.world.check()


class Remembering(Islands):
    """As on Ray: each process keeps answers until a journal says that they are old."""

    def __init__(self) -> None:
        super().__init__(remembered=True)


class Shortened(Islands):
    """A log that keeps eight lines, and a leader that sleeps while more are written."""

    sleeps_long = True

    def __init__(self, remembered: bool = False) -> None:
        super().__init__(remembered, settings=SETTINGS._replace(quorum=1))

    @precondition(lambda self: len(self.processes) > 1)
    @rule(who=WHO, at=AT)
    def sleeps(self, who: int, at: int | str) -> None:
        process = self.pick(who)
        self.give()

        def meanwhile() -> None:
            for _ in range(2 * log.KEPT):
                self.give(but=process)
                self.world.now += 2
                for other in self.processes:
                    if other is not process:
                        self.act(other, other.turn)
                self.world.check()

        self.act(process, lambda: self.interrupted(process, at, "turn", meanwhile))


def run(examples: int, steps: int = 40, machine: Any = Islands) -> None:
    how = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=True,
        database=None,
        print_blob=False,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    run_state_machine_as_test(machine, settings=how)


@pytest.mark.long
@pytest.mark.parametrize("machine", [Islands, Remembering])
def test_any_interleaving(machine):
    run(30, machine=machine)


@pytest.fixture
def short_log(monkeypatch):
    """Lines enough for bounds to look back at, and no more."""
    monkeypatch.setattr(log, "KEPT", MERGES * SETTINGS.fragments)
    monkeypatch.setattr(log, "_SWEEP", 1)


class ShortenedRemembering(Shortened):
    """The same on Ray."""

    def __init__(self) -> None:
        super().__init__(remembered=True)


SHORTENED = [Shortened, ShortenedRemembering]


@pytest.mark.long
@pytest.mark.parametrize("machine", SHORTENED)
def test_any_interleaving_where_old_lines_are_removed(machine, short_log):
    run(15, machine=machine)


@pytest.mark.slow
@pytest.mark.parametrize("machine", SHORTENED)
def test_many_interleavings_where_old_lines_are_removed(machine, short_log):
    run(500, 80, machine)


def test_a_leader_that_has_slept_commits_nothing_where_a_line_was(short_log):
    """Right before its commit, and right after it: another's log goes on."""
    for at in ("log", "state"):
        machine = Shortened()
        machine.everybody()
        leader = next(p for p in machine.processes if p.channel.syncer.lease)
        machine.sleeps(machine.processes.index(leader), at)
        world = machine.world
        assert log.newest(world.store) > log.KEPT + 2
        machine.world.now += LOST_AFTER
        leader.adopt()
        assert leader.version == log.newest(world.store)
        machine.everybody()
        machine.holds()
        lines = [int(name) for name in world.store.names(log.FOLDER)]
        assert len(lines) == log.KEPT
        now = status(world.store, 0.0, lambda seconds: None)
        assert (now.since, now.version) == (min(lines), max(lines))
        assert max(row.merged for row in now.rows) == log.KEPT


@pytest.mark.parametrize("damaged", [False, True])
def test_who_has_slept_writes_no_line_again_that_was_removed(damaged, short_log):
    """Asleep before any operation of a mend, while others go on far beyond it."""
    at = 0
    for at in range(60):
        machine = Shortened()
        for _ in range(3):
            machine.everybody()
        world, asleep = machine.world, machine.processes[-1]
        before, merged = asleep.version, []
        if damaged:
            world.store.files[log.file_of(1)] = b"{"

        def others(machine=machine, asleep=asleep, merged=merged) -> None:
            merged.append(True)
            for _ in range(2 * log.KEPT):
                machine.give(but=asleep)
                machine.world.now += 2
                for other in machine.processes:
                    if other is not asleep:
                        other.turn()

        mending: Any = SimpleNamespace(mend=asleep.channel._state.mend)
        machine.interrupted(mending, at, "mend", others)
        if not merged:
            break
        assert log.newest(world.store) > before + log.KEPT
        lines = [int(name) for name in world.store.names(log.FOLDER)]
        assert min(lines) > log.newest(world.store) - log.KEPT, at
        asleep.adopt()
        assert asleep.version == log.newest(world.store)
    assert at > (10 if damaged else 5), "little was looked at"


@pytest.mark.slow
@pytest.mark.parametrize("machine", [Islands, Remembering])
def test_many_interleavings(machine):
    run(500, 80, machine)


def replaced_commit(store, record):
    """A commit that overwrites."""
    store.replace(log.file_of(record["version"]), log.seal(record))
    return True


def any_base(checked, base, watch):
    return None if watch.is_newest(checked.member) else "old"


def any_incarnation(checked, base, watch):
    return None if checked.offer.base == base else "old"


def fresh_momentum(self, number):
    return first_outer(self._run.settings, self.anchors[number].anchor), None


def unsorted(self, version, base):
    return list(reversed(in_order(self, version, base)))


def no_quorum(self, version, ready):
    return len(ready) >= 1


in_order = Inbox.ready

BROKEN = {
    "commits that overwrite": (log, "commit", replaced_commit),
    "contributions from old versions": (offers, "why_not", any_base),
    "incarnations that were superseded": (offers, "why_not", any_incarnation),
    "momentum that begins anew": (CommonModel, "outer", fresh_momentum),
    "contributors in any order": (Inbox, "ready", unsorted),
    "merges below the quorum": (Syncer, "_is_time", no_quorum),
    "files removed of a commit that may come yet": (syncer, "_FULL", (None,)),
}


@pytest.mark.long
@pytest.mark.few(4)
@pytest.mark.parametrize("fault", BROKEN)
def test_what_breaks_the_rules_is_found(fault, monkeypatch):
    monkeypatch.setattr(*BROKEN[fault])
    with pytest.raises(AssertionError):
        run(100)

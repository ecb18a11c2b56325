"""How a run stands, read from its folder: members, versions, tokens, the last merge."""

import time
from collections.abc import Callable
from typing import NamedTuple

from relaxjax.islands.carriers._store import Store
from relaxjax.islands.common import _log as log
from relaxjax.islands.common import _members as members
from relaxjax.islands.common._agreed import Agreed
from relaxjax.islands.common._syncer import newest_lease


class Row(NamedTuple):
    """One island.

    Attributes:
      name: the island.
      incarnation: its newest process.
      state: "alive", "silent" or "left".
      behind: merges since the last one with a contribution of it; None before that.
      merged: contributions that were merged.
      tokens: tokens in them, each counted for a P-th of the model.
    """

    name: str
    incarnation: int
    state: str
    behind: int | None
    merged: int
    tokens: float


class Status(NamedTuple):
    """A run.

    Attributes:
      version: number of merges.
      since: the first merge whose line the run has kept, from which all is counted.
      leader: who holds the lease.
      rows: the islands.
      last: the line of the last merge; None before the first.
      per_second: merged tokens a second, by the leaders' clocks; 0 if unknown.
    """

    version: int
    since: int
    leader: str
    rows: list[Row]
    last: dict | None
    per_second: float


def status(
    store: Store, watch_for: float = 1.0, sleep: Callable[[float], None] = time.sleep
) -> Status:
    """Reads a run; heartbeats are watched for some seconds.

    Raises:
      FileNotFoundError: there is no run.
      DamagedFile: a line of the log, or `run.json`.
    """
    run = Agreed.read(store)
    watch = members.Watch(store, watch_for / 2)
    watch.look()
    sleep(watch_for)
    watch.look()
    left = {
        n.removesuffix(".left") for n in store.names(members.FOLDER) if ".left" in n
    }
    versions = log.kept(store)
    newest = versions.stop - 1
    lines = [log.read(store, v)[0] for v in versions]
    rows = []
    for name, incarnation in sorted(members.newest(store).items()):
        member = members.Member(name, incarnation)
        own = [
            (line["version"], c["tokens"])
            for line in lines
            for c in line["contributions"]
            if c["island"] == name
        ]
        state = "alive" if watch.is_alive(member) else "silent"
        state = "left" if str(member) in left else state
        behind = newest - own[-1][0] if own else None
        tokens = sum(tokens for _, tokens in own) / run.settings.fragments
        rows.append(Row(name, incarnation, state, behind, len(own), tokens))
    total = sum(row.tokens for row in rows)
    times = [line.get("time", 0.0) for line in lines]
    seconds = times[-1] - times[0] if len(lines) > 1 else 0
    _, holder = newest_lease(store, lambda words: None)
    rate = total / seconds if seconds > 0 else 0.0
    last = lines[-1] if lines else None
    return Status(newest, versions.start, str(holder), rows, last, rate)

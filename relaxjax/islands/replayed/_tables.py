"""A log as the tables of `relaxjax.decoupled_diloco`: who was there, and when.

Islands have no common clock; one program that emulates them has: ticks. Merge v is read
at tick v E and taken over tau ticks later, for all v, and each island's own steps are
laid between these as they lay between its own contributions and what it took over; in
the other ticks it stands still (0 tokens).

    v E             tick in which merge v is read            v = 1, 2, ..
    v E + tau       tick after which it is taken over
    tau             most own steps from a contribution to taking its merge over
    E - tau         most own steps from taking over to the next contribution; 1 or more

A process of its own is a column of its own: before it joins it stands still and takes
everything over, so that it begins from the common model with a fresh optimizer; behind
its last contribution it stands still for good.

Cost: the tables have E V rows, of V merges.
"""

from typing import Any, NamedTuple

import numpy as np

from relaxjax.islands.carriers._store import Store
from relaxjax.islands.common._agreed import Agreed
from relaxjax.islands.common._bounds import weight_of
from relaxjax.islands.one._past import Stay, stays


class Tables(NamedTuple):
    """What `relaxjax.decoupled_diloco` takes, of V merges and n processes.

    Attributes:
      members: names and incarnations, column by column.
      every: E, ticks from one merge to the next.
      overlap: tau.
      present: bool[V, n], who contributed.
      adopts: bool[V, n], who took over.
      tokens: float[E V + tau, n], tokens of each tick.
      steps: int[E V + tau, n], the own step in each tick, from 1; 0 where none is.
    """

    members: list[str]
    every: int
    overlap: int
    present: np.ndarray
    adopts: np.ndarray
    tokens: np.ndarray
    steps: np.ndarray


class _Course(NamedTuple):
    """Own steps that a process has taken when merge v is read, and taken over."""

    read: list[int]
    taken: list[int]


def tables(store: Store, merges: int) -> Tables:
    """The tables of a log.

    Args:
      store: the run.
      merges: V, the number of merges from the first.

    Raises:
      DamagedFile: a line of the log.
      ValueError: what no table can say: tokens that differ from step to step, or of
        which the cap has let fewer count; a merge of which all was left out; what was
        taken over late because a file could not be read.
    """
    run, everyone = Agreed.read(store), stays(store)
    _require_plain(everyone, merges)
    courses = [_course(run, stay, merges) for stay in everyone]
    overlap = max(b - s for c in courses for s, b in zip(*c, strict=True))
    before = [[0, *c.taken[:-1]] for c in courses]
    apart = max(
        s - b for c, t in zip(courses, before, strict=True)
        for s, b in zip(c.read, t, strict=True)
    )  # fmt: skip
    every, shape = overlap + max(1, apart), (merges, len(everyone))
    steps = np.zeros((every * merges + overlap, len(everyone)), int)
    present, adopts = np.zeros(shape, bool), np.zeros(shape, bool)
    for i, (stay, course) in enumerate(zip(everyone, courses, strict=True)):
        last, taken_over = 0, dict(stay.adopted)
        for k, (read, taken) in enumerate(zip(*course, strict=True)):
            for tick, upto in (
                ((k + 1) * every, read),
                ((k + 1) * every + overlap, taken),
            ):
                steps[tick - (upto - last) : tick, i] = range(last + 1, upto + 1)
                last = upto
            present[k, i] = k + 1 in stay.contributed
            adopts[k, i] = k + 1 in taken_over or k + 1 <= stay.joined
    rates = np.array([_rate(stay) for stay in everyone])
    names = [str(stay.member) for stay in everyone]
    tokens = np.where(steps > 0, rates, 0.0)
    return Tables(names, every, overlap, present, adopts, tokens, steps)


def _require_plain(everyone: list[Stay], merges: int) -> None:
    """Merges have contributions, and these weigh what their tokens say."""
    weighed = [(v, x) for stay in everyone for v, x in stay.contributed.items()]
    empty = set(range(1, merges + 1)) - {version for version, _ in weighed}
    capped = {
        version
        for version, said in weighed
        if said["weight"] < weight_of(said["tokens"], said["steps"]) * (1 - 1e-5)
    }
    for found, what in ((empty, "left all out"), (capped, "capped tokens")):
        if found:
            raise ValueError(
                f"islands: merge {min(found)} has {what}, which no table of "
                "decoupled_diloco says; `relaxjax islands replay DIR SCRIPT` runs the "
                "islands' own steps again"
            )


def _course(run: Agreed, stay: Stay, merges: int) -> _Course:
    """Lays a process's own steps beside the merges."""
    read, taken, last = [], [], 0
    after = dict(stay.adopted)
    if len(after) < len(stay.adopted):
        raise ValueError(
            f"islands: {stay.member} was left out of a merge, and took fragments over "
            "again: no table of decoupled_diloco says that; replay it with its own "
            "program"
        )
    for version in range(1, merges + 1):
        said: dict[str, Any] = stay.contributed.get(version, {})
        read.append(said.get("step", last))
        taken.append(after.get(version, read[-1]))
        if not last <= read[-1] <= taken[-1]:
            raise ValueError(
                f"islands: {stay.member} took a merge before {version} over after it "
                f"had contributed to {version}, as where a file could not be read: no "
                "table of decoupled_diloco says that"
            )
        last = taken[-1]
    return _Course(read, taken)


def _rate(stay: Stay) -> float:
    """Tokens of each step of a process."""
    rates = {said["tokens"] / said["steps"] for said in stay.contributed.values()}
    low, high = min(rates), max(rates)
    if high - low > 1e-6 * high:
        raise ValueError(
            f"islands: {stay.member} has taken in {low:g} to {high:g} tokens a step, "
            "and the log has only their sums: what it did cannot be emulated; replay "
            "it with its own program"
        )
    return high

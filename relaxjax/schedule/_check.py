"""Checks of a graph at its construction: times, needs, cycles.

Cost: O(V + E).
"""

import heapq
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from numbers import Real

Timed = tuple[float, Sequence[str]]
"""Seconds, and the names needed before."""


def check_times(argument: str, tasks: Mapping[str, Timed]) -> dict[str, Timed]:
    """Copies `tasks`, with times as floats and needs as tuples without repeats.

    Args:
        argument: the name of the argument, for the message.
        tasks: (seconds, needs) by name.

    Raises:
        TypeError: a task that is not such a pair, or a time that is not a number.
        ValueError: a missing, negative or infinite time.
    """
    checked = {}
    for name, task in tasks.items():
        if not isinstance(task, tuple | list) or len(task) != 2:
            raise TypeError(
                f"{argument}[{name!r}] must be (seconds, needs), got {task}"
            )
        seconds, needs = task
        if isinstance(needs, str):
            raise TypeError(
                f"{argument}[{name!r}] needs a list of names, got the string "
                f"{needs!r}: write [{needs!r}]"
            )
        checked[name] = (
            check_seconds(f"{argument}[{name!r}]", seconds),
            tuple(dict.fromkeys(needs)),
        )
    return checked


def check_seconds(argument: str, seconds: float | None) -> float:
    """Returns `seconds` as a float.

    Args:
        argument: what the time belongs to, for the message.
        seconds: the time.

    Raises:
        TypeError: it is not a number.
        ValueError: it is missing, negative, infinite or NaN.
    """
    if seconds is None:
        raise ValueError(
            f"{argument} has no time: give its seconds (0.0 if it is free)"
        )
    if isinstance(seconds, bool) or not isinstance(seconds, Real):
        raise TypeError(f"{argument} must be a number of seconds, got {seconds!r}")
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError(f"{argument} must be finite and >= 0 seconds, got {seconds}")
    return float(seconds)


def check_rate(name: str, unit: str, rate: float) -> None:
    """Refuses a rate that is no positive number.

    Args:
        name: of the argument.
        unit: for the message.
        rate: to be checked.

    Raises:
        TypeError: it is not a number.
        ValueError: it is zero, negative or NaN.
    """
    if isinstance(rate, bool) or not isinstance(rate, Real):
        raise TypeError(f"{name} must be a number of {unit}, got {rate!r}")
    if not rate > 0:
        raise ValueError(f"{name} must be > 0 {unit}, got {rate}")


def check_names(
    recvs: Collection[str], ops: Mapping[str, Timed], sends: Mapping[str, Timed]
) -> None:
    """Refuses names used twice and needs that nobody provides.

    Args:
        recvs: names of transfers.
        ops: operations by name.
        sends: pushes by name.

    Raises:
        ValueError: recvs and ops share a name, or a need is neither of them.
    """
    both = sorted(set(recvs) & set(ops))
    if both:
        raise ValueError(
            f"names must be unique, but recvs and ops share {both}: rename the ops"
        )
    for argument, tasks in (("ops", ops), ("sends", sends)):
        unknown = {
            name: bad
            for name, (_, needs) in tasks.items()
            if (bad := [n for n in needs if n not in recvs and n not in ops])
        }
        if unknown:
            raise ValueError(
                f"{argument} need names that are neither recvs nor ops: {unknown}; "
                "add them or correct the needs"
            )


def check_order(recvs: Collection[str], order: Iterable[str]) -> list[str]:
    """Returns `order` as a list if it names every recv exactly once.

    Args:
        recvs: names of transfers.
        order: names of recvs.

    Raises:
        ValueError: a recv is missing, repeated or unknown; all are listed.
    """
    order = list(order)
    times = Counter(order)
    for what, names in (
        ("misses", [name for name in recvs if not times[name]]),
        ("names unknown", [name for name in times if name not in recvs]),
        ("repeats", [name for name, count in times.items() if count > 1]),
    ):
        if names:
            raise ValueError(
                f"order must name every recv exactly once, but it {what} {names}"
            )
    return order


def sort_topologically(ops: Mapping[str, Timed]) -> dict[str, Timed]:
    """The same operations, each after the ones it needs, else in the given order.

    Args:
        ops: (seconds, needs) by name; needs outside `ops` are ignored.

    Raises:
        ValueError: the operations contain a cycle, which is named.
    """
    position = {name: i for i, name in enumerate(ops)}
    users: dict[str, list[str]] = {name: [] for name in ops}
    waiting = dict.fromkeys(ops, 0)
    for name, (_, needs) in ops.items():
        for need in needs:
            if need in position:
                users[need].append(name)
                waiting[name] += 1
    names = list(ops)
    ready = [position[name] for name in ops if not waiting[name]]
    result = {}
    while ready:
        name = names[heapq.heappop(ready)]
        result[name] = ops[name]
        for user in users[name]:
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, position[user])
    if len(result) < len(ops):
        raise ValueError(
            f"ops contain a cycle: {' -> '.join(_find_cycle(ops, set(result)))}; "
            "a graph of one step has none, so one of these needs is wrong"
        )
    return result


def _find_cycle(ops: Mapping[str, Timed], done: set[str]) -> list[str]:
    trail = [next(name for name in ops if name not in done)]
    while trail[-1] not in trail[:-1]:
        needs = ops[trail[-1]][1]
        trail.append(next(need for need in needs if need in ops and need not in done))
    return trail[trail.index(trail[-1]) :][::-1]

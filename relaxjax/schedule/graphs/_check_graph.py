"""Checks of a graph when it is made, and of orders of its recvs.

Cost: O(V + E).
"""

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

from relaxjax._core._checks import check_type
from relaxjax._core.foreign._fields import check_count, check_seconds
from relaxjax._core.foreign._ranges import PREDICTED

Timed = tuple[float, Sequence[str]]
"""Seconds of a task, and the names of what it needs."""


def check_graph(
    recvs: Mapping[str, float],
    ops: Mapping[str, Timed],
    sends: Mapping[str, Timed],
    nbytes: Mapping[str, int],
) -> dict[str, Mapping[str, Any]]:
    """Copies of the fields of a graph, with operations after those that they need."""
    check_type("recvs", recvs, Mapping, "write {name: seconds}")
    pulls = _check_times("recvs", {name: (t, ()) for name, t in recvs.items()})
    ops, sends = _check_times("ops", ops), _check_times("sends", sends)
    _check_names(pulls, ops, sends)
    return {
        "recvs": {name: seconds for name, (seconds, _) in pulls.items()},
        "ops": _sort_topologically(ops),
        "sends": sends,
        "nbytes": _check_nbytes(nbytes, recvs, sends),
    }


def _check_times(argument: str, tasks: Mapping[str, Timed]) -> dict[str, Timed]:
    """Copies `tasks`, with times as floats and needs as tuples without repeats."""
    if not isinstance(tasks, Mapping):
        raise TypeError(f"{argument} must be a dict by name, got {tasks!r}")
    checked = {}
    for name, task in tasks.items():
        if not isinstance(name, str) or not name:
            raise TypeError(f"{argument} must have names as keys, got {name!r}")
        if not isinstance(task, tuple | list) or len(task) != 2:
            raise TypeError(
                f"{argument}[{name!r}] must be (seconds, needs), got {task}"
            )
        seconds, needs = task
        checked[name] = (
            check_seconds(f"{argument}[{name!r}]", seconds, PREDICTED),
            _check_needs(f"{argument}[{name!r}]", needs),
        )
    return checked


def _check_needs(argument: str, needs: Iterable[str]) -> tuple[str, ...]:
    if isinstance(needs, str):
        raise TypeError(
            f"{argument} needs a list of names, got the string {needs!r}: write "
            f"[{needs!r}]"
        )
    if not isinstance(needs, Iterable):
        raise TypeError(
            f"{argument} needs a list of names, got {needs!r}: write [] if it needs "
            "nothing"
        )
    needs = list(needs)
    if odd := [need for need in needs if not isinstance(need, str)]:
        raise TypeError(f"{argument} needs names of recvs and ops, got {odd}")
    return tuple(dict.fromkeys(needs))


def _check_names(
    recvs: Collection[str], ops: Mapping[str, Timed], sends: Mapping[str, Timed]
) -> None:
    """Refuses names used twice and needs that nobody provides."""
    both = sorted(set(recvs) & set(ops))
    if both:
        raise ValueError(
            f"names must be unique, but recvs and ops share {both}: rename the ops"
        )
    for argument, tasks in (("ops", ops), ("sends", sends)):
        unknown = {
            name: missing
            for name, (_, needs) in tasks.items()
            if (missing := [n for n in needs if n not in recvs and n not in ops])
        }
        if unknown:
            raise ValueError(
                f"{argument} need names that are neither recvs nor ops: {unknown}; "
                "add them or correct the needs"
            )


def _sort_topologically(ops: Mapping[str, Timed]) -> dict[str, Timed]:
    """The same operations, each after those it needs, otherwise in the same order."""
    before = {name: [n for n in needs if n in ops] for name, (_, needs) in ops.items()}
    sorter = TopologicalSorter(before)
    try:
        sorter.prepare()
    except CycleError as error:
        raise ValueError(
            f"ops contain a cycle: {' -> '.join(error.args[1])}; "
            "the graph of one step has no cycle, so one of these needs is wrong"
        ) from error
    names = list(ops)
    position = {name: i for i, name in enumerate(names)}
    ready: list[int] = []
    result = {}
    while sorter.is_active():
        for name in sorter.get_ready():
            heapq.heappush(ready, position[name])
        name = names[heapq.heappop(ready)]
        result[name] = ops[name]
        sorter.done(name)
    return result


def _check_nbytes(
    nbytes: Mapping[str, int], recvs: Collection[str], sends: Collection[str]
) -> dict[str, int]:
    """Copies `nbytes`; refuses names that are neither pulls nor pushes."""
    unknown = [name for name in nbytes if name not in recvs and name not in sends]
    if unknown:
        raise ValueError(
            f"nbytes names {unknown}, which are neither recvs nor sends: correct them"
        )
    return {n: check_count(f"nbytes[{n!r}]", b, least=0) for n, b in nbytes.items()}


def check_order(recvs: Collection[str], order: Iterable[str]) -> list[str]:
    """Returns `order` as a list if it names every recv exactly once."""
    if isinstance(order, str) or not isinstance(order, Iterable):
        raise TypeError(f"order must be a list of recv names, got {order!r}")
    order = list(order)
    times = Counter(order)
    for fault, names in (
        ("misses", [name for name in recvs if not times[name]]),
        ("names unknown", [name for name in times if name not in recvs]),
        ("repeats", [name for name, count in times.items() if count > 1]),
    ):
        if names:
            raise ValueError(
                f"order must name every recv exactly once, but it {fault} {names}"
            )
    return order

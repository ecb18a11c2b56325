"""The graph of one worker: pulls, operations, pushes, and how long each takes.

Source: Hashemi, Abdu Jyothi and Campbell, "TicTac: Accelerating Distributed Deep
Learning with Communication Scheduling", MLSys 2019. In a worker's partition the
*recv* operations (parameter pulls) are roots and the *send* operations (gradient
pushes) are leaves; only the order of the recvs is free.

Symbols: Time(op) seconds; op.dep, the recvs on which op depends, directly or not.

Cost: O(V + E) big-integer operations on sets of recvs kept as bits.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from relaxjax.schedule._check import Timed, check_times, sort_topologically


@dataclass(frozen=True)
class Graph:
    """Transfers and operations of one worker, with their times.

    Attributes:
        recvs: seconds of each parameter pull.
        ops: for each operation its seconds and what it needs: recvs and other ops.
        sends: for each gradient push its seconds and the ops it needs. A send that
            bears a recv's name is the push of that parameter's gradient.
        nbytes: bytes of transfers, where they are known (the simulator uses them).
        attributed: share of the operations' seconds that came from a rule or a
            measurement; 1.0 for a graph given by hand.

    Raises:
        TypeError: a time that is not a number.
        ValueError: a negative, infinite or missing time, a name used twice, a need
            that nobody provides, or a cycle.

    Example:
        >>> graph = Graph(
        ...     recvs={"w1": 1.0, "w2": 1.0},
        ...     ops={"dot1": (1.0, ["w1"]), "dot2": (1.0, ["dot1", "w2"])},
        ... )
        >>> graph.dep("dot2")
        ('w1', 'w2')
    """

    recvs: Mapping[str, float]
    ops: Mapping[str, Timed]
    sends: Mapping[str, Timed] = field(default_factory=dict)
    nbytes: Mapping[str, int] = field(default_factory=dict)
    attributed: float = 1.0

    def __post_init__(self) -> None:
        """Copies and checks what was given."""
        recvs = check_times("recvs", {n: (t, ()) for n, t in self.recvs.items()})
        ops = check_times("ops", self.ops)
        sends = check_times("sends", self.sends)
        both = sorted(set(recvs) & set(ops))
        if both:
            raise ValueError(
                f"names must be unique, but recvs and ops share {both}: rename the ops"
            )
        _check_needs("ops", ops, {*recvs, *ops})
        _check_needs("sends", sends, {*recvs, *ops})
        object.__setattr__(self, "recvs", {name: t for name, (t, _) in recvs.items()})
        object.__setattr__(self, "ops", sort_topologically(ops))
        object.__setattr__(self, "sends", sends)
        object.__setattr__(self, "nbytes", dict(self.nbytes))

    @cached_property
    def masks(self) -> dict[str, int]:
        """op.dep of each operation, as bits: bit i is the i-th recv."""
        masks = {name: 1 << i for i, name in enumerate(self.recvs)}
        for name, (_, needs) in self.ops.items():
            mask = 0
            for need in needs:
                mask |= masks[need]
            masks[name] = mask
        return {name: masks[name] for name in self.ops}

    def dep(self, op: str) -> tuple[str, ...]:
        """The recvs on which `op` depends, directly or through other operations.

        Args:
            op: name of an operation.

        Returns:
            Names of recvs, in the order of `recvs`.
        """
        mask = self.masks[op]
        return tuple(name for i, name in enumerate(self.recvs) if mask >> i & 1)

    @property
    def communication(self) -> float:
        """Seconds of all recvs, one after the other."""
        return sum(self.recvs.values())

    @property
    def computation(self) -> float:
        """Seconds of all operations, one after the other."""
        return sum(seconds for seconds, _ in self.ops.values())

    def scaled(self, *, recvs: float = 1.0, ops: float = 1.0) -> "Graph":
        """The same graph with times multiplied.

        Args:
            recvs: factor of all transfers, pulls and pushes.
            ops: factor of all operations.

        Returns:
            A new graph.

        Example:
            >>> graph = Graph(recvs={"w": 2.0}, ops={"dot": (1.0, ["w"])})
            >>> graph.scaled(recvs=0.5).recvs
            {'w': 1.0}
        """
        return Graph(
            recvs={name: t * recvs for name, t in self.recvs.items()},
            ops={name: (t * ops, needs) for name, (t, needs) in self.ops.items()},
            sends={name: (t * recvs, needs) for name, (t, needs) in self.sends.items()},
            nbytes=self.nbytes,
            attributed=self.attributed,
        )

    def check_order(self, order: Iterable[str]) -> list[str]:
        """Returns `order` as a list if it names every recv exactly once.

        Args:
            order: names of recvs.

        Raises:
            ValueError: a recv is missing, repeated or unknown; all are listed.
        """
        order = list(order)
        times = Counter(order)
        missing = [name for name in self.recvs if not times[name]]
        unknown = [name for name in times if name not in self.recvs]
        repeated = [name for name, count in times.items() if count > 1]
        for what, names in (
            ("misses", missing),
            ("names unknown", unknown),
            ("repeats", repeated),
        ):
            if names:
                raise ValueError(
                    f"order must name every recv exactly once, but it {what} {names}"
                )
        return order


def _check_needs(
    argument: str, tasks: Mapping[str, tuple[float, Sequence[str]]], known: set[str]
) -> None:
    unknown = {
        name: bad
        for name, (_, needs) in tasks.items()
        if (bad := [need for need in needs if need not in known])
    }
    if unknown:
        raise ValueError(
            f"{argument} need names that are neither recvs nor ops: {unknown}; "
            "add them or correct the needs"
        )

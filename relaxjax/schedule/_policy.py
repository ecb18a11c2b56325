"""A communication policy as data: one record says what a system does.

The named ones are in `_policies`; any other combination is as good a policy.
"""

from collections.abc import Callable
from dataclasses import dataclass

from relaxjax._core._checks import check_bytes, check_count
from relaxjax.schedule._check_graph import check_order
from relaxjax.schedule._graph import Graph
from relaxjax.schedule._rates import Cost

QUEUES = ("random", "fifo", "priority")


@dataclass(frozen=True)
class Policy:
    """What is sent, when, and in which order.

    Attributes:
        name: for tables.
        queue: of pulls: "random" (no order at all), "fifo" or "priority".
        order: recv names by falling priority, for "priority".
        push_queue: of pushes: "fifo" or "priority".
        partition_bytes: messages are cut into slices of at most this size.
        credit_bytes: how much a sender may have under way; None: one message.
        barrier: whether a step starts only when every worker has ended the last.
        collective: what it costs to reduce so many bytes; None: parameter servers.
        buckets: gradients that travel together, for a collective.
        phases: 2 splits a collective into reduce-scatter and all-gather (DeAR).
        every: a collective takes place in every so many steps (local steps).

    Raises:
        TypeError: a size that is not a number.
        ValueError: an unknown queue, or sizes that are not positive.

    Example:
        >>> Policy("fifo", queue="fifo").barrier
        True
    """

    name: str
    queue: str = "fifo"
    order: tuple[str, ...] = ()
    push_queue: str = "fifo"
    partition_bytes: int | None = None
    credit_bytes: int | None = None
    barrier: bool = True
    collective: Callable[[int], Cost] | None = None
    buckets: tuple[tuple[str, ...], ...] = ()
    phases: int = 1
    every: int = 1

    def __post_init__(self) -> None:
        """Checks the fields."""
        if self.queue not in QUEUES:
            raise ValueError(f"queue must be one of {QUEUES}, got {self.queue!r}")
        if self.push_queue not in QUEUES[1:]:
            raise ValueError(
                f"push_queue must be one of {QUEUES[1:]}, got {self.push_queue!r}"
            )
        check_count("every", self.every)
        for name in ("partition_bytes", "credit_bytes"):
            if getattr(self, name) is not None:
                check_bytes(name, getattr(self, name), least=1)
        if self.phases not in (1, 2):
            raise ValueError(f"phases must be 1 or 2, got {self.phases}")


def check_policy(graph: Graph, policy: Policy) -> None:
    """Refuses a policy that does not fit the graph.

    Args:
        graph: the worker's graph.
        policy: to be checked.

    Raises:
        ValueError: an order or buckets that miss, repeat or invent a transfer, or
            fields that the policy's kind does not use.
    """
    unused = {
        True: ("partition_bytes", "credit_bytes"),
        False: ("buckets", "phases", "every"),
    }[policy.collective is not None]
    default = Policy("")
    odd = [name for name in unused if getattr(policy, name) != getattr(default, name)]
    if odd:
        kind = "parameter servers" if policy.collective is None else "a collective"
        raise ValueError(
            f"policy {policy.name!r} is of {kind}, which knows no {odd}: leave them out"
            + ("" if policy.collective else ", or give collective=")
        )
    if "priority" in (policy.queue, policy.push_queue):
        check_order(graph.recvs, policy.order)
    if policy.collective is not None:
        check_order(graph.sends, [n for bucket in policy.buckets for n in bucket])

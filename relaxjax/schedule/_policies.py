"""Policies by name: what published systems do, each as one record.

    unordered        TensorFlow's parameter server: pulls arrive in random order
    ordered          TIC, TAC, best or any other list, kept by the sender
    wait-free        Poseidon: a gradient leaves as soon as it exists, FIFO
    P3               slices, strict priority by layer, no barrier between steps
    ByteScheduler    as P3, with a window of bytes under way (credit)
    MG-WFBP          wait-free, with small gradients merged while that pays
    DeAR             reduce-scatter under the backward pass, all-gather under the next
                     forward pass

Sources: Hashemi et al. (TicTac, MLSys 2019); Zhang et al. (Poseidon, USENIX ATC 2017);
Jayarajan et al. (P3, MLSys 2019); Peng et al. (ByteScheduler, SOSP 2019); Shi et al.
(MG-WFBP, INFOCOM 2019); Zhang et al. (DeAR, ICDCS 2023).

A communication policy as data: one record says what a system does.

The named ones are in `_policies`; any other combination is as good a policy.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from relaxjax._core._checks import check_bytes, check_count
from relaxjax.schedule._baselines import layer_order
from relaxjax.schedule._check_graph import check_order
from relaxjax.schedule._graph import Graph
from relaxjax.schedule._hardware import Cost

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


def unordered() -> Policy:
    """Pulls in an order that is random for every worker and step.

    A server shares its link fairly among the workers that ask for something.

    Example:
        >>> unordered().queue
        'random'
    """
    return Policy("unordered", queue="random")


def ordered(name: str, order: Iterable[str]) -> Policy:
    """Pulls in a given order, the same for every worker and step.

    Args:
        name: of the order, as "tac".
        order: every recv once.

    Example:
        >>> ordered("mine", ["b", "a"]).order
        ('b', 'a')
    """
    return Policy(name, queue="priority", order=tuple(order))


def p3(graph: Graph, *, slice_bytes: int = 160_000) -> Policy:
    """Priority-based parameter propagation.

    Args:
        graph: gives the order of layers.
        slice_bytes: 40 000 parameters of 4 bytes in the authors' code.

    Example:
        >>> p3(Graph(recvs={"w": 1}, ops={})).barrier
        False
    """
    return Policy(
        "p3",
        queue="priority",
        order=tuple(layer_order(graph)),
        push_queue="priority",
        partition_bytes=slice_bytes,
        barrier=False,
    )


def byte_scheduler(
    graph: Graph, *, partition_bytes: int = 4_000_000, credit_bytes: int = 16_000_000
) -> Policy:
    """Partitions by priority, with a credit; the defaults are those of its code.

    Args:
        graph: gives the order of layers.
        partition_bytes: largest slice.
        credit_bytes: bytes that may be under way.

    Example:
        >>> byte_scheduler(Graph(recvs={"w": 1}, ops={})).credit_bytes
        16000000
    """
    return Policy(
        "byte_scheduler",
        queue="priority",
        order=tuple(layer_order(graph)),
        push_queue="priority",
        partition_bytes=partition_bytes,
        credit_bytes=credit_bytes,
        barrier=False,
    )


def wait_free(graph: Graph, collective: Callable[[int], Cost]) -> Policy:
    """Each gradient is reduced as soon as it exists, first in, first out.

    Args:
        graph: with sends.
        collective: what it costs to reduce so many bytes.

    Example:
        >>> graph = Graph(recvs={}, ops={"b": (1, [])}, sends={"w": (1, ["b"])})
        >>> wait_free(graph, lambda n: Cost(1, n)).buckets
        (('w',),)
    """
    return Policy(
        "wait_free",
        collective=collective,
        buckets=tuple((name,) for name in graph.sends),
        barrier=False,
    )


def dear(
    graph: Graph,
    collective: Callable[[int], Cost],
    *,
    buckets: Sequence[Sequence[str]] = (),
) -> Policy:
    """Reduce-scatter under the backward pass, all-gather under the next forward.

    Args:
        graph: with sends.
        collective: what a whole all-reduce of so many bytes costs; each phase is half.
        buckets: gradients that travel together; by default each alone.

    Example:
        >>> graph = Graph(recvs={}, ops={"b": (1, [])}, sends={"w": (1, ["b"])})
        >>> dear(graph, lambda n: Cost(2, n)).phases
        2
    """
    return Policy(
        "dear",
        collective=collective,
        buckets=tuple(map(tuple, buckets)) or tuple((name,) for name in graph.sends),
        order=tuple(layer_order(graph)),
        phases=2,
        barrier=False,
    )

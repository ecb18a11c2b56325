"""Communication policies: what published systems do, each as one record.

    unordered        TensorFlow's parameter server: pulls arrive in random order
    ordered          TIC, TAC, best or any other list, enforced by the sender
    wait_free        Poseidon: a gradient leaves as soon as it exists, FIFO
    p3               slices, strict priority by layer, no barrier between steps
    byte_scheduler   the same, with a window of bytes under way (credit)
    dear             reduce-scatter under the backward pass, all-gather under the next
                     forward pass

Any other combination of fields is a policy, too.

Sources: Hashemi et al. (TicTac, MLSys 2019); Zhang et al. (Poseidon, USENIX ATC 2017);
Jayarajan et al. (P3, MLSys 2019); Peng et al. (ByteScheduler, SOSP 2019); Zhang et al.
(DeAR, ICDCS 2023). MG-WFBP, which merges gradients, is in `_mg_wfbp`.

Cost: O(V + E).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from relaxjax._core.foreign._fields import check_bytes, check_count
from relaxjax.schedule.graphs._check_graph import check_order
from relaxjax.schedule.graphs._graph import Graph
from relaxjax.schedule.graphs._hardware import Cost
from relaxjax.schedule.orders._baselines import layer_order

QUEUES = ("random", "fifo", "priority")


@dataclass(frozen=True)
class Policy:
    """What is sent, when, and in which order.

    Attributes:
      name: the name in tables.
      queue: how pulls are served: "random" (no order at all), "fifo" or "priority".
      order: recv names by falling priority; a "priority" queue serves by it, and
        `dear` its all-gathers.
      push_queue: how pushes are served: "fifo" or "priority".
      partition_bytes: messages are cut into slices of at most this size.
      credit_bytes: how much a sender may have under way; None: one message.
      barrier: whether a step starts only when every worker has ended the last one.
      collective: from bytes to the cost of reducing them; None: parameter servers.
      buckets: gradients that travel together, for a collective.
      phases: 2 splits a collective into reduce-scatter and all-gather (DeAR).
      every: steps from one collective to the next (local steps).

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
    """Refuses a policy that does not fit the graph, or sets what its kind ignores."""
    kind, unused, remedy = "collectives", ("partition_bytes", "credit_bytes"), ""
    if policy.collective is None:
        kind, unused = "parameter servers", ("buckets", "phases", "every")
        remedy = ", or give collective="
    default = Policy("")
    if odd := [n for n in unused if getattr(policy, n) != getattr(default, n)]:
        raise ValueError(
            f"policy {policy.name!r} is for {kind}, which ignore {odd}: leave them out"
            f"{remedy}"
        )
    if "priority" in (policy.queue, policy.push_queue):
        check_order(graph.recvs, policy.order)
    if policy.collective is not None:
        check_order(graph.sends, [n for bucket in policy.buckets for n in bucket])


def unordered() -> Policy:
    """Pulls in a random order, another one for every worker and step.

    A server shares its link fairly among the workers that have asked for something.

    Example:
      >>> unordered().queue
      'random'
    """
    return Policy("unordered", queue="random")


def ordered(name: str, order: Iterable[str]) -> Policy:
    """Pulls in a given order, the same for every worker and step.

    Args:
      name: the name of the order, such as "tac".
      order: every recv once.

    Example:
      >>> ordered("mine", ["b", "a"]).order
      ('b', 'a')
    """
    return Policy(name, queue="priority", order=tuple(order))


def p3(graph: Graph, *, slice_bytes: int = 160_000) -> Policy:
    """Priority-based parameter propagation.

    Args:
      graph: the graph that gives the order of layers.
      slice_bytes: largest slice; by default 40 000 parameters of 4 bytes, as in the
        authors' code.

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
    """Partitions by priority, with a credit; the defaults are the authors'.

    Args:
      graph: the graph that gives the order of layers.
      partition_bytes: largest slice.
      credit_bytes: bytes that may be under way.

    Example:
      >>> byte_scheduler(Graph(recvs={"w": 1}, ops={})).credit_bytes
      16000000
    """
    without_credit = p3(graph, slice_bytes=partition_bytes)
    return replace(without_credit, name="byte_scheduler", credit_bytes=credit_bytes)


def wait_free(graph: Graph, collective: Callable[[int], Cost]) -> Policy:
    """Each gradient is reduced as soon as it exists, first in, first out.

    Args:
      graph: a graph with sends.
      collective: from bytes to the cost of reducing them.

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
      graph: a graph with sends.
      collective: from bytes to the cost of a whole all-reduce; a phase is half of it.
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

"""The graph of one worker: pulls, operations, pushes, and how long each takes.

Source: Hashemi, Abdu Jyothi and Campbell, "TicTac: Accelerating Distributed Deep
Learning with Communication Scheduling", MLSys 2019. In a worker's partition the
*recv* operations (parameter pulls) are roots and the *send* operations (gradient
pushes) are leaves; only the order of the recvs is free.

Symbols: Time(op), seconds; op.dep, the recvs on which op depends, directly or not.

Cost: O(V + E) big-integer operations on sets of recvs kept as bits.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import jax

from relaxjax._core._checks import check_type
from relaxjax.schedule.graphs._check_graph import Timed, check_graph
from relaxjax.schedule.graphs._flops import nbytes as nbytes_of
from relaxjax.schedule.graphs._hardware import ACCELERATOR, ETHERNET, Device, Link
from relaxjax.schedule.graphs._hlo_cost import read_hlo
from relaxjax.schedule.graphs._oracle import Oracle, analytic
from relaxjax.schedule.graphs._trace import leaves_by_name, trace


@dataclass(frozen=True)
class Graph:
    """Transfers and operations of one worker, with their times.

    Attributes:
      recvs: seconds of each parameter pull.
      ops: for each operation, its seconds and what it needs: recvs and other ops.
      sends: for each gradient push, its seconds and the ops it needs. A send with the
        name of a recv is the push of that parameter's gradient.
      nbytes: bytes of transfers, where they are known (the simulator uses them).
      attributed: share of the operations' seconds that came from a rule or a
        measurement; 1.0 for a graph written by hand.

    Raises:
      TypeError: a time that is not a number, a name or a need that is not a string.
      ValueError: a negative, infinite or missing time, a name used twice, a need that
        nobody provides, a cycle, or bytes of something that is not a transfer.

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
        """Copies and checks the fields."""
        fields = check_graph(self.recvs, self.ops, self.sends, self.nbytes)
        vars(self).update(fields)

    @classmethod
    def from_function(
        cls,
        fn: Callable[..., Any],
        params: Any,
        *args: Any,
        pushes: Callable[[Any], Any] | None = None,
        oracle: Oracle | None = None,
        link: Link = ETHERNET,
    ) -> "Graph":
        """The graph of a user's function, from its jaxpr.

        Nothing is computed: arrays may be given as `jax.ShapeDtypeStruct`.

        Args:
          fn: the function, called as `fn(params, *args)`.
          params: a pytree; each leaf is one transfer, named by its path ("a/b").
          *args: the other arguments.
          pushes: picks the gradients (a pytree like `params`) out of what `fn` returns;
            each is then pushed. `Graph.from_loss` does this for a loss.
          oracle: gives the seconds of each equation; by default `analytic()`.
          link: gives the seconds of each transfer.

        Returns:
          A graph; `attributed` says what share of its seconds rests on a rule.

        Raises:
          ValueError: no parameters, a function that uses none of them, or pushes that
            are not like `params`.

        Example:
          >>> import jax, jax.numpy as jnp
          >>> w = jax.ShapeDtypeStruct((4, 4), jnp.float32)
          >>> x = jax.ShapeDtypeStruct((2, 4), jnp.float32)
          >>> fn = lambda params, x: jnp.tanh(x @ params["w"])
          >>> graph = Graph.from_function(fn, {"w": w}, x)
          >>> {op: needs for op, (_, needs) in graph.ops.items()}
          {'dot_general': ('w',), 'tanh': ('dot_general',)}
        """
        check_type("link", link, Link, "give Link(latency=..., bandwidth=...)")
        traced = trace(fn, params, args, pushes, oracle or analytic())
        return cls._with_link(link, *traced)

    @classmethod
    def from_loss(
        cls,
        loss_fn: Callable[..., Any],
        params: Any,
        *args: Any,
        oracle: Oracle | None = None,
        link: Link = ETHERNET,
    ) -> "Graph":
        """The graph of a training step: forward, backward, and the gradients' pushes.

        Args:
          loss_fn: the loss, called as `loss_fn(params, *args)`; returns a scalar.
          params: a pytree; each leaf is pulled, and its gradient is pushed.
          *args: the other arguments.
          oracle: as in `from_function`.
          link: as in `from_function`.

        Example:
          >>> import jax, jax.numpy as jnp
          >>> w = jax.ShapeDtypeStruct((4,), jnp.float32)
          >>> list(Graph.from_loss(lambda p: jnp.sum(p["w"] ** 2), {"w": w}).sends)
          ['w']
        """
        return cls.from_function(
            jax.grad(loss_fn),
            params,
            *args,
            pushes=lambda gradients: gradients,
            oracle=oracle,
            link=link,
        )

    @classmethod
    def from_hlo(
        cls,
        text: str,
        params: Any,
        *,
        device: Device = ACCELERATOR,
        link: Link = ETHERNET,
    ) -> "Graph":
        """The graph of an optimized HLO module: after fusion, as it will run.

        Args:
          text: `jax.jit(fn, keep_unused=True).lower(params, ...).compile().as_text()`;
            the function's first argument must be `params`.
          params: a pytree; its leaves are the module's first parameters.
          device: rates that give the times of instructions.
          link: gives the seconds of each transfer.

        Returns:
          A graph without sends; each instruction of the entry computation is an
          operation.

        Raises:
          ValueError: text without an entry computation, or with parameters of other
            sizes than the leaves of `params`.
        """
        leaves = leaves_by_name(params)
        nbytes = {name: nbytes_of(leaf) for name, leaf in leaves.items()}
        return cls._with_link(link, nbytes, read_hlo(text, nbytes, device), {}, 1.0)

    @classmethod
    def _with_link(
        cls,
        link: Link,
        nbytes: Mapping[str, int],
        ops: Mapping[str, Timed],
        pushes: Mapping[str, Sequence[str]],
        attributed: float,
    ) -> "Graph":
        recvs = {name: link.seconds(size) for name, size in nbytes.items()}
        sends = {name: (recvs[name], needs) for name, needs in pushes.items()}
        return cls(recvs, ops, sends, nbytes, attributed)

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
          op: the name of an operation.

        Returns:
          Names of recvs, in the order of `recvs`.

        Raises:
          ValueError: an unknown operation.
        """
        if op not in self.masks:
            raise ValueError(f"op must name an operation of the graph, got {op!r}")
        names = list(self.recvs)
        return tuple(names[i] for i in bits(self.masks[op]))

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

        Example:
          >>> graph = Graph(recvs={"w": 2.0}, ops={"dot": (1.0, ["w"])})
          >>> graph.scaled(recvs=0.5).recvs
          {'w': 1.0}
        """
        return replace(
            self,
            recvs={name: t * recvs for name, t in self.recvs.items()},
            ops={name: (t * ops, needs) for name, (t, needs) in self.ops.items()},
            sends={name: (t * recvs, needs) for name, (t, needs) in self.sends.items()},
        )


def bits(mask: int) -> Iterator[int]:
    """Indices of the recvs in a set kept as bits, in rising order."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def latest(ends: Mapping[str, float], needs: Iterable[str]) -> float:
    """When the last of the needs ends; 0 without needs."""
    return max((ends[need] for need in needs), default=0.0)

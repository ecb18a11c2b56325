"""The graph of one worker: pulls, operations, pushes, and how long each takes.

Source: Hashemi, Abdu Jyothi and Campbell, "TicTac: Accelerating Distributed Deep
Learning with Communication Scheduling", MLSys 2019. In a worker's partition the
*recv* operations (parameter pulls) are roots and the *send* operations (gradient
pushes) are leaves; only the order of the recvs is free.

Symbols: Time(op) seconds; op.dep, the recvs on which op depends, directly or not.

Cost: O(V + E) big-integer operations on sets of recvs kept as bits.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax

from relaxjax._core._checks import check_type
from relaxjax.schedule._check_graph import (
    Timed,
    check_names,
    check_nbytes,
    check_times,
    sort_topologically,
)
from relaxjax.schedule._hardware import ACCELERATOR, ETHERNET, Device, Link
from relaxjax.schedule._hlo import read_hlo
from relaxjax.schedule._oracle import Oracle, analytic
from relaxjax.schedule._trace import Traced, trace


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
        TypeError: a time that is not a number, a name or a need that is not a string.
        ValueError: a negative, infinite or missing time, a name used twice, a need
            that nobody provides, a cycle, or bytes of what is no transfer.

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
        check_type("recvs", self.recvs, Mapping, "write {name: seconds}")
        recvs = check_times("recvs", {n: (t, ()) for n, t in self.recvs.items()})
        ops = check_times("ops", self.ops)
        sends = check_times("sends", self.sends)
        check_names(recvs, ops, sends)
        object.__setattr__(self, "recvs", {name: t for name, (t, _) in recvs.items()})
        object.__setattr__(self, "ops", sort_topologically(ops))
        object.__setattr__(self, "sends", sends)
        nbytes = check_nbytes(self.nbytes, recvs, sends)
        object.__setattr__(self, "nbytes", nbytes)

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
            fn: called as `fn(params, *args)`.
            params: a pytree; each leaf is one transfer, named by its path ("a/b").
            *args: the other arguments.
            pushes: picks the gradients (a pytree like `params`) out of what `fn`
                returns; each is then pushed. `Graph.from_loss` does this for a loss.
            oracle: seconds of each equation; by default `analytic()`.
            link: seconds of each transfer.

        Returns:
            A graph; `attributed` says which share of its seconds rests on a rule.

        Raises:
            ValueError: no parameters, a function that uses none of them, or pushes
                that are not like `params`.

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
        return _assemble(
            cls, trace(fn, params, args, pushes, oracle or analytic()), link
        )

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
            loss_fn: called as `loss_fn(params, *args)`, returns a scalar.
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
            text: of `jax.jit(fn, keep_unused=True).lower(params, ...).compile()`,
                by its `as_text()`; the function's first argument must be `params`.
            params: a pytree; its leaves are the module's first parameters.
            device: rates, for the times of instructions.
            link: seconds of each transfer.

        Returns:
            A graph without sends, each instruction of the entry computation an
            operation.

        Raises:
            ValueError: text without an entry computation, or with parameters of
                other sizes than the leaves of `params`.
        """
        return _assemble(cls, read_hlo(text, params, device), link)

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

        Raises:
            ValueError: an unknown operation.
        """
        if op not in self.masks:
            raise ValueError(f"op must name an operation of the graph, got {op!r}")
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


def _assemble(cls: type[Graph], traced: Traced, link: Link) -> Graph:
    seconds = {name: link.seconds(size) for name, size in traced.nbytes.items()}
    return cls(
        recvs=seconds,
        ops=traced.ops,
        sends={name: (seconds[name], needs) for name, needs in traced.pushes.items()},
        nbytes=traced.nbytes,
        attributed=traced.attributed,
    )

"""What all decentralized methods share: rounds of gossip, and their transformation.

In a round worker i's tree x_i becomes sum_j W_ij x_j, with the weights W of the round.
With `every` = k only each k-th step is a round; the others send nothing. A method is a
rule for a step, of which `gossip_transformation` makes a transformation.

Cost: that of `relaxjax.collectives.neighbor_change` for each bucket; leaves narrower
than float32 travel in float32, since the mean of what is rounded is not the mean.
"""

import functools
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any, NamedTuple

import jax
import optax

from relaxjax._core._arrays import require_own_parts, require_same
from relaxjax._core._axis import AxisName, axes_of, axis_size
from relaxjax._core._buckets import plan_buckets
from relaxjax._core._checks import require_params
from relaxjax._core._cond import when
from relaxjax._core._local import LocalState
from relaxjax._core._merge_rules import MEAN
from relaxjax._core._tree import layout_of, widened
from relaxjax._core._weights import refuse_weight
from relaxjax._core.layouts._sharding import on_own_shards, sharded_over
from relaxjax._core.traced._marks import marked
from relaxjax.collectives import (
    hierarchical_neighbor_change,
    neighbor_change,
    neighbor_message,
)
from relaxjax.gradients import map_buckets
from relaxjax.periods import COUNTER, Meetings, Rounds
from relaxjax.topology import Topology


class GossipState(NamedTuple):
    """State of every decentralized method.

    Attributes:
      step: int32, the number of steps, modulo those of a period of the topology; or,
        under a schedule, the counters of `relaxjax.periods.Meetings`.
      kept: the method's memory, a NamedTuple of its own; () for `gossip`.
      leaves: the leaves that differ between workers.
    """

    step: Annotated[jax.Array | Meetings, COUNTER]
    kept: Any
    leaves: Annotated[LocalState, MEAN]


class GossipSpec(NamedTuple):
    """How a method gossips: its name, and the arguments that all methods have."""

    caller: str
    axis_name: AxisName
    topology: Topology
    rounds: Rounds
    bucket_bytes: int
    specs: Any

    @property
    def outer(self) -> str:
        """The axis of the topology."""
        return axes_of(self.axis_name)[0]

    def change(self, x: Any, step: jax.Array) -> Any:
        """W x - x of this worker in the last step of a round, else zeros.

        x is a tree of floats, float32 or wider; steps count as `next_step` does.
        """
        self.require(x)
        due, nothing = self.is_round_due(step), optax.tree.zeros_like(x)
        return when(due, lambda _, x: self.communicate(x, step), nothing, x)

    def communicate(self, x: Any, step: jax.Array) -> Any:
        """W x - x of this worker, after `require`, where `is_round_due`."""
        mix = functools.partial(self._mix, round=self.rounds.number(step))
        return on_own_shards(mix, x, self.specs, self.caller)

    def _mix(self, x: Any, *, round: jax.Array) -> Any:
        names = axes_of(self.axis_name)

        def exchange(flat: jax.Array, _: jax.Array) -> tuple[jax.Array]:
            if len(names) == 1:
                return (neighbor_change(flat, self.outer, self.topology, round),)
            return (hierarchical_neighbor_change(flat, names, self.topology, round),)

        return self.in_buckets(x, exchange)[0]

    def received(self, x: Any, pairs: Any) -> Any:
        """x of the worker that `pairs` has send to this one; zeros where none does."""

        def exchange(flat: jax.Array, _: jax.Array) -> tuple[jax.Array]:
            return (neighbor_message(flat, self.outer, pairs),)

        return self.in_buckets(x, exchange)[0]

    def in_buckets(self, x: Any, exchange: Callable[..., Any], results: int = 1) -> Any:
        """`map_buckets` over the buckets of a tree like `specs`: `results` of them."""
        leaves, tree = jax.tree.flatten(x)
        if not leaves:
            return (x,) * results
        layouts = sharded_over(x, self.specs)
        buckets = plan_buckets(x, bucket_bytes=self.bucket_bytes, layouts=layouts)
        return tuple(map(tree.unflatten, map_buckets(leaves, buckets, exchange)))

    def is_round_due(self, step: jax.Array) -> bool | jax.Array:
        """Whether a round ends this step; a bool of Python where each step is one."""
        return self.rounds.due(step)

    def next_step(self, step: jax.Array) -> jax.Array:
        """The step after."""
        return self.rounds.after(step)

    def as_float32(self, params: Any, updates: Any) -> tuple[Any, Any]:
        """Params, which must be there, in float32 or wider, and updates like them."""
        require_params(params, self.caller, "which it averages")
        wide = widened(params)
        return wide, optax.tree.cast_like(updates, wide)

    def require(self, x: Any) -> None:
        """Refuses a wrong axis, and leaves that are equal on all workers or sharded."""
        self.require_size()
        require_own_parts(x, self.axis_name, self.specs, self.caller)

    def require_size(self) -> None:
        """Refuses an axis of another size than the topology, or none."""
        axis_size(self.axis_name, self.caller)
        n, graph = axis_size(self.outer, self.caller), self.topology
        if n != graph.n:
            raise ValueError(
                f"{self.caller}: the topology {graph.name!r} is of {graph.n} workers, "
                f"and the axis {self.outer!r} has {n}: make it for {n}"
            )


def gossip_transformation(
    spec: GossipSpec,
    start: Callable[[optax.Params], Any],
    rule: Callable[[Any, Any, Any, jax.Array], tuple[Any, Any]],
    side: str = "models",
) -> optax.GradientTransformationExtraArgs:
    """The transformation of a method.

    `start(params)` is the method's first memory; `rule(updates, params, memory, step)`
    gives the updates that come out and the next memory. `side` is as in
    `relaxjax._core.traced._marks`.
    """

    def init(params: optax.Params) -> Any:
        with suppress(NameError):  # no axis: in `relaxjax.init` there is
            spec.require_size()
        leaves = LocalState(layout_of(params))
        return GossipState(spec.rounds.start(), start(params), leaves)

    def update(updates, state, params=None, *, weight=None, **extra_args) -> Any:
        del extra_args
        refuse_weight(weight, spec.caller)
        require_same(state.leaves.layout, updates, spec.caller)
        out, memory = rule(updates, params, state.kept, state.step)
        memory = optax.tree.cast_like(memory, state.kept)
        return out, GossipState(spec.next_step(state.step), memory, state.leaves)

    return marked(spec.caller, side, spec.axis_name, init, update)

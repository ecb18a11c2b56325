"""Rounds of gossip over the leaves of a tree: what all decentralised methods share.

Each call is a round: worker i's tree x_i becomes sum_j W_ij x_j, with the weights W of
the round. With `every` = k, only each k-th call is one; the others send nothing.

Cost: of `relaxjax.collectives.neighbor_change` for each bucket; leaves narrower than
float32 travel in float32, since the mean of what is rounded is not the mean.

The transformation of a decentralised method, from its rule for a step.
"""

import functools
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from relaxjax._core._axis import AxisName, axes_of, axis_size, require_local
from relaxjax._core._buckets import check_bucket_bytes, plan_buckets
from relaxjax._core._checks import require_no_compiler_axes, require_whole
from relaxjax._core._cond import cond
from relaxjax._core._dtypes import wide
from relaxjax._core._local import LocalState
from relaxjax._core._merge_rules import MEAN, RESET
from relaxjax._core._sharding import on_own_shards
from relaxjax._core._tree import layout_of, require_params, require_same
from relaxjax._core._weights import refuse_weight
from relaxjax.collectives import hierarchical_neighbor_change, neighbor_change
from relaxjax.gradients import map_buckets
from relaxjax.topology import Topology


class GossipSpec(NamedTuple):
    """How a method gossips.

    Attributes:
      caller: the method.
      axis_name: of the workers; of two, inside the inner one all take the mean.
      topology: the weights, over the axis, or over the outer one.
      every: how many steps a round takes; in the others nothing is sent.
      bucket_bytes: as of `relaxjax.all_reduce`.
      specs: as of `relaxjax.all_reduce`.
    """

    caller: str
    axis_name: AxisName
    topology: Topology
    every: int
    bucket_bytes: int
    specs: Any

    @property
    def outer(self) -> str:
        """The axis of the topology."""
        return axes_of(self.axis_name)[0]

    def change(self, x: Any, step: jax.Array) -> Any:
        """W x - x, of this worker.

        Args:
          x: a pytree of floating arrays, float32 or wider.
          step: int32[], as counted by `next_step`.

        Raises:
          ValueError: the topology is not of this axis' size; leaves that the compiler
            shards, without `specs`.
          NameError: outside the axis.
        """
        self.require(x)
        talk = functools.partial(self.talk, step=step)
        return cond(self.due(step), talk, silent, x)

    def talk(self, x: Any, step: jax.Array) -> Any:
        """`change` in a step that is due, for who has asked `require` and `due`."""
        round = functools.partial(_round, self, number=step // self.every)
        return on_own_shards(round, x, self.specs, self.caller)

    def require(self, x: Any) -> None:
        """Refuses what cannot travel here; as of `change`."""
        require_size(self)
        require_local(x, self.axis_name, self.caller)
        if self.specs is None:
            require_no_compiler_axes(self.caller, "it")

    def due(self, step: jax.Array) -> bool | jax.Array:
        """Whether a round ends this step; a bool of Python where each step is one."""
        return self.every == 1 or step % self.every == self.every - 1

    def next_step(self, step: jax.Array) -> jax.Array:
        """The step after: they are counted around, so that none is too large."""
        return (step + 1) % (self.every * self.topology.period)


def gossip_spec(
    caller: str,
    axis_name: AxisName,
    topology: Topology,
    every: int,
    bucket_bytes: int,
    specs: Any,
    *,
    doubly: bool = True,
) -> GossipSpec:
    """How a method gossips, if its parts are what they should be.

    Args:
      caller: the method.
      axis_name: an axis, or (outer, inner).
      topology: the weights, over the axis, or over the outer one.
      every: how many steps a round takes.
      bucket_bytes: as of `relaxjax.all_reduce`.
      specs: as of `relaxjax.all_reduce`.
      doubly: whether the method needs weights that keep the workers' mean.

    Raises:
      TypeError: `axis_name` is more than two axes, `topology` no topology.
      ValueError: `every < 1`; weights that keep no mean.
    """
    if len(axes_of(axis_name)) > 2:
        raise TypeError(
            f"{caller}: axis_name={axis_name!r} must be one axis, or two: (outer, "
            "inner), of which the inner one takes the mean"
        )
    if not isinstance(topology, Topology):
        raise TypeError(
            f"{caller}: topology={topology!r} must be one of relaxjax.topology, such "
            "as relaxjax.topology.ring(8), or from_matrix(w)"
        )
    require_whole(caller, "every", every)
    check_bucket_bytes(bucket_bytes)
    if doubly and not topology.is_doubly_stochastic:
        raise ValueError(
            f"{caller}: the topology {topology.name!r} does not keep the workers' mean "
            "(its rows do not sum to 1); use relaxjax.push_sum, or weights of "
            "relaxjax.topology.metropolis"
        )
    return GossipSpec(caller, axis_name, topology, every, bucket_bytes, specs)


def require_one_axis(mixing: GossipSpec) -> None:
    """Refuses a mean inside hosts: what is kept of neighbours would be kept there."""
    names = axes_of(mixing.axis_name)
    if len(names) > 1:
        outer, inner = names
        raise TypeError(
            f"{mixing.caller}: axis_name={names} must be one axis. Inside hosts, "
            f"average gradients: optax.chain(relaxjax.all_reduce({inner!r}), "
            f"optimizer, relaxjax.{mixing.caller}({outer!r}, topology, ...))"
        )


def require_one_round(mixing: GossipSpec, why: str) -> None:
    """Refuses graphs that change, and says `why`."""
    topology = mixing.topology
    if topology.period > 1:
        raise ValueError(
            f"{mixing.caller}: the topology {topology.name!r} has {topology.period} "
            f"rounds, and {why} needs one that stays, such as relaxjax.topology.ring"
        )


def widened(tree: Any) -> Any:
    """Leaves in float32, where they are narrower."""
    return jax.tree.map(lambda x: x.astype(wide(x.dtype)), tree)


def require_size(mixing: GossipSpec) -> None:
    """Refuses an axis of another size than the topology.

    Raises:
      ValueError: it is.
      NameError: outside the axis.
    """
    axis_size(mixing.axis_name, mixing.caller)
    n, graph = axis_size(mixing.outer, mixing.caller), mixing.topology
    if n != graph.n:
        raise ValueError(
            f"{mixing.caller}: the topology {graph.name!r} is of {graph.n} workers, "
            f"and the axis {mixing.outer!r} has {n}: make it for {n}"
        )


def silent(x: Any) -> Any:
    """What is heard where nothing is said."""
    return jax.tree.map(jnp.zeros_like, x)


def in_buckets(
    mixing: GossipSpec,
    x: Any,
    exchange: Callable[[jax.Array, jax.Array], tuple[jax.Array, ...]],
    results: int = 1,
) -> tuple[Any, ...]:
    """`map_buckets` over the buckets of a tree: `results` trees like it."""
    leaves, tree = jax.tree.flatten(x)
    if not leaves:
        return (x,) * results
    buckets = plan_buckets(x, bucket_bytes=mixing.bucket_bytes)
    return tuple(map(tree.unflatten, map_buckets(leaves, buckets, exchange)))


def _round(mixing: GossipSpec, x: Any, *, number: jax.Array) -> Any:
    """A round over all leaves."""
    names, graph = axes_of(mixing.axis_name), mixing.topology

    def exchange(flat: jax.Array, bucket: jax.Array) -> tuple[jax.Array]:
        del bucket
        if len(names) == 1:
            return (neighbor_change(flat, mixing.outer, graph, number),)
        return (hierarchical_neighbor_change(flat, names, graph, number),)

    (change,) = in_buckets(mixing, x, exchange)
    return change


class GossipState(NamedTuple):
    """State of every decentralised method.

    Attributes:
      step: int32, counted around; equal on all workers.
      kept: what the method remembers, a NamedTuple of its own; () for `gossip`.
      leaves: those that differ between workers.
    """

    step: Annotated[jax.Array, RESET]
    kept: Any
    leaves: Annotated[LocalState, MEAN]


def gossip_transformation(
    mixing: GossipSpec,
    start: Callable[[optax.Params], Any],
    rule: Callable[[Any, Any, Any, jax.Array], tuple[Any, Any]],
) -> optax.GradientTransformationExtraArgs:
    """The transformation.

    Args:
      mixing: how the method gossips.
      start: from the params, what the method keeps.
      rule: `rule(updates, params, kept, step)`: the updates that come out, and what is
        kept for the next step.
    """
    caller = mixing.caller

    def init(params: optax.Params) -> Any:
        marks = LocalState(layout_of(params))
        return GossipState(jnp.zeros((), jnp.int32), start(params), marks)

    def update(updates, state, params=None, *, weight=None, **extra_args) -> Any:
        del extra_args
        refuse_weight(weight, caller)
        require_same(state.leaves.layout, updates, caller)
        out, kept = rule(updates, params, state.kept, state.step)
        return out, GossipState(mixing.next_step(state.step), kept, state.leaves)

    return optax.GradientTransformationExtraArgs(init, update)


def as_float32(mixing: GossipSpec, params: Any, updates: Any) -> tuple[Any, Any]:
    """Params and updates in float32, or wider.

    Raises:
      ValueError: no params.
    """
    require_params(params, mixing.caller, "which it averages")
    return widened(params), widened(updates)


def zeros_like(params: optax.Params) -> Any:
    """In float32, or wider."""
    return jax.tree.map(jnp.zeros_like, widened(params))

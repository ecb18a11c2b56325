"""Parameter servers: gradients are pushed, servers take the step, updates are pulled.

Source: Li et al. 2014 (parameter server); Hashemi et al. 2019 (TicTac) for the order of
transfers; Ho et al. 2013 and Zheng et al. 2017 for what comes late.

With x[s] the slice of all params that server s holds, at every step:

    push    q_s = (1/n) sum_i g_i[s]        (g_i may be late, `relaxjax.ps._late`)
    serve   u_s = optimizer(q_s, x[s])
    pull    u = (u_1, .., u_k) at every worker, transfer by transfer, in order

The optimizer's state lies at the servers: a k-th of it at each worker. Pulls come after
the backward pass here, as of any transformation, and so hide behind nothing;
`relaxjax.ps.pulled` is the form whose pulls come first.

Cost: push and pull together (`relaxjax.ps._servers`), for k = n what an all-reduce
sends; in codes as `relaxjax.ps._coded_wire` states.
"""

import functools
from collections.abc import Iterable
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from relaxjax._core._axis import AxisName, axes_of, require_local
from relaxjax._core._buckets import check_bucket_bytes
from relaxjax._core._checks import require_dtypes, require_no_compiler_axes
from relaxjax._core._merge_rules import RESET, Leaf, MergeRule, resliced
from relaxjax._core._tree import Layout, layout_of, require_params, require_same
from relaxjax._core._weights import factor, weigh
from relaxjax.compression import Compressor
from relaxjax.ps._coded_wire import (
    check_compressor,
    coded_wire,
    init_coded,
    require_full,
)
from relaxjax.ps._elementwise import require_elementwise
from relaxjax.ps._late import late_pushes
from relaxjax.ps._servers import Servers, check_servers, servers_of
from relaxjax.ps._wire import Kind, Wire, plan_transfers

_CALLER = "parameter_server"


def _at_other_servers(leaf: Leaf, rows: np.ndarray) -> np.ndarray:
    before, now = leaf.saved("servers")[0], leaf.made("servers")[0]
    return resliced(leaf, rows, int(before), int(now))


class ParameterServerState(NamedTuple):
    """State of `parameter_server`.

    Attributes:
      optimizer: of this worker's slices, as a server.
      late: gradients under way; () without staleness.
      owed: feedback and randomness of a compressor; () without one.
      servers: int32[], how many there are.
      layout: the tree that `init` saw.
    """

    optimizer: Annotated[Any, MergeRule("shard", _at_other_servers)]
    late: Any
    owed: Any
    servers: Annotated[jax.Array, RESET]
    layout: Layout


def parameter_server(
    optimizer: optax.GradientTransformation,
    axis_name: AxisName,
    *,
    servers: int | None = None,
    order: Iterable[str] | None = None,
    staleness: Any = 0,
    compensation: float = 0.0,
    compressor: Compressor | None = None,
    bucket_bytes: int = 8 * 2**20,
    seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
    """Runs the optimizer at servers, each of which has a slice of every leaf.

    It stands in the optimizer's place. With staleness 0 it equals
    `optax.chain(all_reduce(axis_name), optimizer)`, with a k-th of the optimizer's
    state at each worker.

    Args:
      optimizer: elementwise, such as `optax.adamw`, as a server sees slices.
      axis_name: the axis; of a tuple, the last axis has the servers, and each server is
        the same on all others.
      servers: their number k, which divides the number of workers n; worker i is part
        of server i mod k. None: every worker is one.
      order: leaf names in the order of pulls, such as `relaxjax.schedule.tac` gives
        them; pushes leave in the reverse of it. None: natural order.
      staleness: 0, every gradient arrives at once; s, up to s steps late, as drawn by
        `random_delays` with `seed`; a table [period, workers] as of
        `bounded_staleness`, without any bound but its own.
      compensation: lambda of `dc_asgd` for what is late, 0 is none.
      compressor: of pushes and pulls, with `compression.error_feedback`,
        `compression.loco` or no feedback; needs k = n on one axis.
      bucket_bytes: most bytes of whole leaves that travel together.
      seed: of delays and of random compressors.

    Returns:
      A gradient transformation for floating leaves, whose state is made in the axis
      (`relaxjax.init`). Its `update` takes `weight=`, as of `all_reduce`.

    Raises:
      TypeError: `compressor` is none.
      ValueError: servers, staleness, compensation, bucket_bytes or an order that are
        none; a compressor that cannot do pulls; in `init`: more servers than leaves, a
        number that does not divide the workers', an optimizer that is not elementwise;
        in `update`: no params, another tree than `init` saw, leaves that the compiler
        shards.
      NameError: outside the axis.

    Example:
      >>> import jax.numpy as jnp, optax, relaxjax
      >>> tx = relaxjax.parameter_server(optax.adam(1e-3), "data")
      >>> params = {"w": jnp.zeros((4, 4)), "b": jnp.zeros(4)}
      >>> params, state = relaxjax.init(tx, params, relaxjax.emulate(4))
      >>> state.optimizer[0].mu["w"].shape  # a quarter at each of the four workers
      (4, 4)
      >>> relaxjax.wire_bytes(tx, {"w": jnp.zeros((4, 4))}, relaxjax.emulate(4))
      96
    """
    axes_of(axis_name)
    check_servers(_CALLER, servers)
    check_compressor(_CALLER, compressor)
    late = late_pushes(_CALLER, axis_name, staleness, compensation, seed)
    plan = functools.partial(
        plan_transfers,
        order=None if order is None else tuple(order),
        bucket_bytes=check_bucket_bytes(bucket_bytes),
    )
    step_of = optax.with_extra_args_support(optimizer).update

    def found(tree: Any) -> Servers:
        at = servers_of(_CALLER, axis_name, servers, len(jax.tree.leaves(tree)))
        if compressor is not None:
            require_full(_CALLER, at)
        return at

    def wire_of(at: Servers, updates: Any, owed: Any) -> tuple[Any, Any]:
        wire = Wire(at, plan(updates))
        if compressor is None:
            return wire, owed
        return coded_wire(*wire, compressor, owed, axis_name)

    def init(params: optax.Params) -> Any:
        require_dtypes(params, _CALLER, compressor and compressor.name)
        require_elementwise(optimizer, params, _CALLER)
        plan(params)
        own = jax.tree.map(lambda x: found(params).own(x), params)
        owed = _first_owed(compressor, params, own, seed)
        waiting = late().init(params) if late else ()
        kept = optimizer.init(own)
        # `optax.tree.map_params` calls this outside the axis, with no leaves at all.
        number = jnp.int32(found(params).number if jax.tree.leaves(params) else 0)
        return ParameterServerState(kept, waiting, owed, number, layout_of(params))

    def update(updates, state, params=None, *, weight=None, **extra_args) -> Any:
        at = found(updates)
        _require(state, updates, params, axis_name)
        waiting, own = state.late, jax.tree.map(at.own, params)
        updates = _weighted(updates, weight, axis_name)
        if late:
            updates, waiting = late().update(updates, waiting, params)
        wire, owed = wire_of(at, updates, state.owed)
        leaves, tree = jax.tree.flatten(updates)
        means, owed = wire.push(leaves, owed)
        mean = tree.unflatten(means)
        served, inner = step_of(mean, state.optimizer, own, **extra_args)
        slices = tree.flatten_up_to(served)
        kinds = [Kind(x.shape, y.dtype) for x, y in zip(leaves, slices, strict=True)]
        out, owed = wire.pull(slices, kinds, owed)
        state = state._replace(optimizer=inner, late=waiting, owed=owed)
        return tree.unflatten(out), state

    return optax.GradientTransformationExtraArgs(init, update)


def _first_owed(compressor: Compressor | None, params: Any, own: Any, seed: int) -> Any:
    """The first state of a compressor; () without one."""
    if compressor is None:
        return ()
    return init_coded(compressor, jax.tree.leaves(params), jax.tree.leaves(own), seed)


def _weighted(updates: Any, weight: Any, axis_name: AxisName) -> Any:
    """Each worker's part of a mean over examples, times the number of workers."""
    if weight is None:
        return updates
    w = factor(weight, axis_name, "mean")
    return jax.tree.map(lambda u: weigh(u, w), updates)


def _require(state: Any, updates: Any, params: Any, axis_name: AxisName) -> None:
    """Refuses a call of `update` that is none."""
    require_params(params, _CALLER, "of which servers hold slices")
    require_same(state.layout, updates, _CALLER)
    require_local(updates, axis_name, _CALLER)
    require_no_compiler_axes(_CALLER, "sharding over servers")

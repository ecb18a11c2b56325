"""Parameter servers: gradients are pushed, servers take the step, updates are pulled.

Source: Li et al. 2014 (parameter server); Hashemi et al. 2019 (TicTac) for the order of
transfers; Ho et al. 2013 and Zheng et al. 2017 for what comes late.

With x[s] the slice of all params that server s holds, at every step:

    push    q_s = (1/n) sum_i g_i[s]        (g_i may be late, `relaxjax.ps._late`)
    serve   u_s = optimizer(q_s, x[s])
    pull    u = (u_1, .., u_k) at every worker, transfer by transfer, in order

The optimizer's state lies at the servers: a k-th of it at each worker. Like any
transformation, this one pulls after the backward pass, and hides behind nothing;
`relaxjax.ps.pulled` is the form whose pulls come first.

Cost: a push and a pull (`relaxjax.ps._servers`), for k = n what an all-reduce sends; in
codes see `relaxjax.ps._coded_transfers`.
"""

import functools
from collections.abc import Iterable
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from relaxjax._core._arrays import (
    require_dtypes,
    require_local,
    require_no_compiler_axes,
    require_same,
)
from relaxjax._core._axis import AxisName, axis_size
from relaxjax._core._checks import require_params, require_transformation
from relaxjax._core._merge_rules import RESET, Leaf, MergeRule, resliced
from relaxjax._core._sending_order import check_bucket_bytes
from relaxjax._core._tree import Layout, layout_of, widened
from relaxjax._core._weights import divide_narrow, weigh_tree
from relaxjax._core.traced._marks import marked
from relaxjax.collectives import ExactTransfers, Kind, plan_transfers
from relaxjax.compression import Compressor
from relaxjax.gradients import require_elementwise, require_same_by_slice
from relaxjax.ps._coded_transfers import (
    check_compressor,
    coded_transfers,
    init_coded,
    require_full,
)
from relaxjax.ps._late import late_pushes
from relaxjax.ps._refusals import check_servers, served_by
from relaxjax.ps._servers import Servers, servers_of

_CALLER = "parameter_server"


def _at_other_servers(leaf: Leaf, rows: np.ndarray) -> np.ndarray:
    before, now = leaf.saved("servers")[0], leaf.made("servers")[0]
    return resliced(leaf, rows, int(before), int(now))


class ParameterServerState(NamedTuple):
    """State of `parameter_server`.

    Attributes:
      optimizer: the optimizer's state of this worker's slices, as a server.
      late: gradients under way, in float32 or wider; () without staleness.
      owed: feedback and randomness of a compressor; () without one.
      servers: int32[], the number of servers.
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
      servers: the number of servers k, which divides the number of workers n; worker i
        is part of server i mod k. None: every worker is one.
      order: leaf names in the order of pulls, for example from `relaxjax.schedule.tac`;
        pushes leave in the reverse of it. None: natural order.
      staleness: 0 if every gradient arrives at once; s if up to s steps late, drawn by
        `random_delays` with `seed`; or a table [period, workers] for
        `bounded_staleness`, with no bound but its own.
      compensation: lambda of `dc_asgd` for what is late; 0 for no compensation.
      compressor: the compressor of pushes and pulls, with `compression.error_feedback`,
        `compression.loco` or no feedback; needs k = n on one axis.
      bucket_bytes: most bytes of whole leaves that travel together.
      seed: seed of delays and of random compressors.

    Returns:
      A gradient transformation for floating leaves, whose state is made in the axis
      (`relaxjax.init`). Its `update` takes `weight=`, see `relaxjax.all_reduce`.

    Raises:
      TypeError: `compressor` is neither a `Compressor` nor None.
      ValueError: servers, staleness, compensation, bucket_bytes or order are invalid;
        the compressor cannot do pulls; in `init`: there are more servers than leaves,
        their number does not divide the workers', the optimizer is not elementwise or
        looks at the shapes of leaves; in `update`: no params, another tree than `init`
        saw, leaves that the compiler shards, a relaxation in the optimizer.
      NameError: it is called outside the axis.

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
    require_transformation("parameter_server", "optimizer", optimizer)
    check_servers(_CALLER, servers)
    check_compressor(_CALLER, compressor)
    late = late_pushes(_CALLER, axis_name, staleness, compensation, seed)
    plan = functools.partial(
        plan_transfers,
        order=None if order is None else tuple(order),
        bucket_bytes=check_bucket_bytes(bucket_bytes),
    )
    step_of = served_by(_CALLER, optimizer)

    def servers_for(tree: Any) -> Servers:
        at = servers_of(_CALLER, axis_name, servers, len(jax.tree.leaves(tree)))
        if compressor is not None:
            require_full(_CALLER, at)
        return at

    def transfers_of(
        at: Servers, updates: Any, owed: Any, divided: bool
    ) -> tuple[Any, Any]:
        if compressor is None:
            return ExactTransfers(at, plan(updates), divided), owed
        return coded_transfers(at, plan(updates), compressor, owed, axis_name)

    def init(params: optax.Params) -> Any:
        require_dtypes(params, _CALLER, compressor and compressor.name)
        require_elementwise(optimizer, params, _CALLER)
        plan(params)
        own = jax.tree.map(lambda x: servers_for(params).own(x), params)
        require_same_by_slice(optimizer, params, own, _CALLER)
        owed = ()
        if compressor is not None:
            leaves, slices = jax.tree.leaves(params), jax.tree.leaves(own)
            owed = init_coded(compressor, leaves, slices, seed)
        waiting = late().init(widened(params)) if late else ()
        inner = optimizer.init(own)
        # `optax.tree.map_params` calls this outside the axis, with no leaves at all.
        number = jnp.int32(servers_for(params).number if jax.tree.leaves(params) else 0)
        return ParameterServerState(inner, waiting, owed, number, layout_of(params))

    def update(updates, state, params=None, *, weight=None, **extra_args) -> Any:
        at = servers_for(updates)
        require_params(params, _CALLER, "of which servers hold slices")
        require_same(state.layout, updates, _CALLER)
        require_local(updates, axis_name, _CALLER)
        require_no_compiler_axes(_CALLER, "sharding over servers")
        waiting, own = state.late, jax.tree.map(at.own, params)
        narrow, updates = updates, weigh_tree(updates, weight, axis_name)
        if late:
            updates, waiting = late().update(widened(updates), waiting, params)
        divided = compressor is None and bool(late or weight is not None)
        if divided:  # n w g / sum w may be out of range where w g / sum w is not
            updates = divide_narrow(updates, narrow, axis_size(axis_name, _CALLER))
        if compressor is None:  # in its own dtype; codes are made of float32
            updates = optax.tree.cast_like(updates, narrow)
        transfers, owed = transfers_of(at, updates, state.owed, divided)
        leaves, tree = jax.tree.flatten(updates)
        means, owed = transfers.push(leaves, owed)
        mean = optax.tree.cast_like(tree.unflatten(means), narrow)
        served, inner = step_of(mean, state.optimizer, own, **extra_args)
        slices = tree.flatten_up_to(served)
        kinds = [Kind(x.shape, y.dtype) for x, y in zip(leaves, slices, strict=True)]
        out, owed = transfers.pull(slices, kinds, owed)
        state = state._replace(optimizer=inner, late=waiting, owed=owed)
        return tree.unflatten(out), state

    return marked(_CALLER, "optimizer", axis_name, init, update, optimizer)

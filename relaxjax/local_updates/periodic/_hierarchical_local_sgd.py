"""Hierarchical local SGD: means over near workers often, over all of them seldom.

Source: Lin et al. 2020. There are periods H_1 < ... < H_L, each with its axes, which
are among the next one's. The largest period that divides t + o decides in step t, from
1, with a the last model common to all:

    x_i <- x_i + u_i                                      (each step)
    x_i <- mean over the axes of H_l of x_j               (l < L)
    a <- a + mean over all of C(x_i - a),  x_i <- a       (l = L)

C is a compressor with its feedback, or the identity; the other means are exact.
PyTorch's `HierarchicalModelAverager` counts from 0: of {2, 4} its calls 1, 5, 9 are of
all, and 3, 7 near. That is o = H_L - 1.

Cost: what `all_reduce` sends over the axes of a period for the params in float32, in
the steps that it decides. State: the anchor a, and the feedback's.
"""

import itertools
import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from relaxjax._core._axis import AxisName, axes_of
from relaxjax._core._checks import require_whole
from relaxjax._core._cond import when
from relaxjax._core._local import LocalState
from relaxjax._core._tree import layout_of
from relaxjax._core.traced._marks import marked
from relaxjax.compression import Compressor
from relaxjax.gradients import all_reduce
from relaxjax.local_updates.common._local_steps import (
    ExchangeSpec,
    OuterState,
    synchronize,
)
from relaxjax.local_updates.periodic._diloco import AnchorState, outer_step

_CALLER = "hierarchical_local_sgd"


def hierarchical_local_sgd(
    axes: Mapping[int, AxisName],
    *,
    offset: int = 0,
    compressor: Compressor | None = None,
    algorithm: str = "auto",
    bucket_bytes: int = 8 * 2**20,
    specs: Any = None,
    seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
    """Averages models over some axes every few steps, over more of them less often.

    Experimental: this may change in any release.

    Put it last in the chain, like `local_sgd`.

    Args:
      axes: from the number of steps between two means, 1 or more, to the axis, or tuple
        of axes, over which they are taken; a larger number has at least one axis more.
      offset: o, the number of steps by which all means come earlier; one less than the
        largest period takes a mean of all in the first step, as PyTorch's averager.
      compressor: see `local_sgd`; for the means over all axes.
      algorithm: see `relaxjax.all_reduce`; for the means over all axes.
      bucket_bytes: see `relaxjax.all_reduce`.
      specs: see `relaxjax.all_reduce`.
      seed: the seed of random compressors.

    Returns:
      A gradient transformation, as in `local_sgd`, without `weight=`.

    Raises:
      ValueError: no periods, one below 1, a negative offset, axes that are not among
        those of the next larger period; what `local_sgd` refuses; a `weight` in
        `update`.
      NameError: `update` outside the axes.

    Example:
      >>> import jax.numpy as jnp, optax, relaxjax
      >>> tx = optax.chain(
      ...     optax.sgd(0.1),
      ...     relaxjax.hierarchical_local_sgd({2: "device", 4: ("host", "device")}),
      ... )
      >>> mesh, x = relaxjax.emulate({"host": 2, "device": 4}), jnp.zeros(64)
      >>> [relaxjax.wire_bytes(tx, x, mesh, start=t) for t in range(4)]
      [0, 384, 0, 448]
    """
    levels = _levels(axes)
    require_whole(_CALLER, "offset", offset, least=0)
    *near, far = levels.values()
    periods = np.array(list(levels))
    exchange = ExchangeSpec(
        _CALLER, far, compressor, algorithm, bucket_bytes, specs, seed
    )
    outer = outer_step(exchange, optax.sgd(1.0))
    exact = partial(all_reduce, bucket_bytes=bucket_bytes, specs=specs)
    reducers = [exact(names) for names in near]

    def init(params: optax.Params) -> Any:
        leaves = LocalState(layout_of(params))
        return OuterState(jnp.zeros((), jnp.int32), outer.init(params), leaves)

    def update(updates, state, params=None, *, weight=None, **extra_args) -> Any:
        del extra_args
        exchange.require(state, updates, params, weight)
        step, memory, leaves = state
        u, x = (optax.tree.cast_like(tree, memory.anchor) for tree in (updates, params))
        meetings = [
            *(partial(_average, reducer, x) for reducer in reducers),
            partial(synchronize, outer.update, None, x),
        ]
        count = step + 1
        due = (count + offset) % periods == 0
        widest = jnp.where(due, jnp.arange(len(meetings)), -1).max()
        for number, meet in enumerate(meetings):
            u, memory = when(widest == number, meet, (u, memory))
        return u, OuterState(count % math.lcm(*levels), memory, leaves)

    return marked(_CALLER, "models", far, init, update)


def _average(
    reducer: Any, x: Any, before: tuple[Any, AnchorState]
) -> tuple[Any, AnchorState]:
    """The updates that end at the mean over some of the axes; exact, so stateless."""
    u, memory = before
    y = jax.tree.map(jnp.add, x, u)
    mean, _ = reducer.update(y, reducer.init(y))
    return optax.tree.sub(mean, x), memory


def _levels(axes: Mapping[int, AxisName]) -> dict[int, AxisName]:
    """The axes by their periods, the shortest first."""
    if not axes:
        raise ValueError(
            f"{_CALLER}: axes={axes!r} must have a period, such as {{4: 'device', 16: "
            "('host', 'device')}"
        )
    for period in axes:
        require_whole(_CALLER, "period", period)
    levels = dict(sorted(axes.items()))
    for (period, names), (longer, more) in itertools.pairwise(levels.items()):
        if not set(axes_of(names)) < set(axes_of(more)):
            raise ValueError(
                f"{_CALLER}: the axes {more!r} of period {longer} must hold those of "
                f"period {period}, {names!r}, and one more: give them as a tuple"
            )
    return levels

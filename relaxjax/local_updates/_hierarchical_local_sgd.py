"""Hierarchical local SGD: means over near workers often, over all of them seldom.

Source: Lin et al. 2020; the rule as in PyTorch's averager. Of periods H_1 < ... < H_L
and their axes, each among the next one's, the largest period that divides the step
decides, with a the last model common to all:

    x_i <- x_i + u_i                                      (each step)
    x_i <- mean over the axes of H_l of x_j               (l < L)
    a <- a + mean over all of C(x_i - a),  x_i <- a       (l = L)

C is a compressor with its feedback, or the identity, on the longest way alone.

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
from relaxjax._core._cond import switch
from relaxjax._core._local import LocalState
from relaxjax._core._tree import layout_of
from relaxjax.compression import Compressor
from relaxjax.gradients import all_reduce
from relaxjax.local_updates._local_steps import OuterState, synchronize
from relaxjax.local_updates._outer_step import AnchorState, like, outer_step

_CALLER = "hierarchical_local_sgd"


def hierarchical_local_sgd(
    axes: Mapping[int, AxisName],
    *,
    compressor: Compressor | None = None,
    algorithm: str = "auto",
    bucket_bytes: int = 8 * 2**20,
    specs: Any = None,
    seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
    """Averages models over some axes every few steps, over more of them less often.

    Put it last in the chain, as `local_sgd`.

    Args:
      axes: from the number of steps between two means, 1 or more, to the axis, or tuple
        of axes, over which they are taken; of a larger number, an axis more.
      compressor: as of `local_sgd`, for the means over all axes.
      algorithm: as of `relaxjax.all_reduce`, for the means over all axes.
      bucket_bytes: as of `relaxjax.all_reduce`.
      specs: as of `relaxjax.all_reduce`.
      seed: of random compressors.

    Returns:
      A gradient transformation, as of `local_sgd`.

    Raises:
      ValueError: no periods, one below 1, axes that are not among those of the next
        larger period; else as of `local_sgd`.
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
    *near, far = levels.values()
    periods = np.array(list(levels))
    outer = outer_step(
        _CALLER, far, optax.sgd(1.0), compressor, algorithm, bucket_bytes, seed, specs
    )
    exact = partial(all_reduce, bucket_bytes=bucket_bytes, specs=specs)
    reducers = [exact(names) for names in near]

    def init(params: optax.Params) -> Any:
        marks = LocalState(layout_of(params))
        return OuterState(jnp.zeros((), jnp.int32), outer.init(params), marks)

    def update(updates, state, params=None, *, weight=None, **extra_args) -> Any:
        del extra_args
        outer.require(state, updates, params, weight)
        step, kept, leaves = state
        u, x = like(kept.anchor, updates), like(kept.anchor, params)
        choices = [
            lambda *own: own,
            *(partial(_near, reducer, x) for reducer in reducers),
            partial(synchronize, outer.update, x),
        ]
        count = step + 1
        due = jnp.where(count % periods == 0, jnp.arange(1, len(choices)), 0).max()
        u, kept = switch(due, choices, u, kept)
        return u, OuterState(count % math.lcm(*levels), kept, leaves)

    return optax.GradientTransformationExtraArgs(init, update)


def _near(reducer: Any, x: Any, u: Any, kept: AnchorState) -> tuple[Any, AnchorState]:
    """The mean over the axes of a level that is not the last; exact, so stateless."""
    y = jax.tree.map(jnp.add, x, u)
    mean, _ = reducer.update(y, reducer.init(y))
    return jax.tree.map(jnp.subtract, mean, x), kept


def _levels(axes: Mapping[int, AxisName]) -> dict[int, AxisName]:
    """Periods and their axes, rising."""
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

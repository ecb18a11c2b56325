"""Bounded staleness: gradients of slow workers arrive later, by a table of delays.

Source: stale synchronous parallel (Ho et al. 2013), made reproducible: at step t
worker i's gradient is d steps under way, with d = delays[t mod period, i], at most s.

    out_t = sum of w(d) g_u over the steps u of this worker with u + d_u = t

Nothing is lost and nothing counts twice: what has come out and what is under way is
all there was (with w = 1). Staleness-aware rates (Zhang et al. 2016) are w(d) =
1 / max(d, 1). With delay compensation (DC-ASGD, Zheng et al. 2017), x_u the params that
a gradient was taken at and x those that it meets, elementwise:

    g + lambda g^2 (x - x_u)

In lock step this is the mathematics of asynchronous training, and not its speed.

Cost: s gradients of this worker, with compensation 2 s. Nothing is sent.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from relaxjax._axis import AxisName, axis_size
from relaxjax._layout import Layout, layout_of, require_params, require_same
from relaxjax._numbers import require_whole
from relaxjax._weights import refuse_weight

_CALLER = "bounded_staleness"


class BoundedStalenessState(NamedTuple):
    """State of `bounded_staleness`.

    Attributes:
      step: int32, counted around the period; equal on all workers.
      arriving: for each number of steps from 1 to s, the sum of what arrives then: the
        gradients g - lambda g^2 x_u, and lambda g^2 where these are compensated.
      layout: the tree that `init` saw.
    """

    step: jax.Array
    arriving: tuple[Any, ...]
    layout: Layout


def random_delays(
    workers: int, most: int, *, seed: int = 0, period: int = 64
) -> np.ndarray:
    """A table for `bounded_staleness`, each delay equally likely.

    Args:
      workers: number of columns.
      most: the largest delay, 0 or more.
      seed: of the draws.
      period: number of rows.

    Returns:
      int64[period, workers].

    Raises:
      ValueError: no whole numbers, `workers` or `period` below 1, `most` below 0.

    Example:
      >>> import relaxjax
      >>> print(relaxjax.random_delays(4, 2, period=8).max())
      2
    """
    require_whole("random_delays", "workers", workers)
    require_whole("random_delays", "most", most, 0)
    require_whole("random_delays", "period", period)
    rng = np.random.default_rng(seed)
    return rng.integers(0, most, (period, workers), endpoint=True)


def bounded_staleness(
    axis_name: AxisName,
    delays: Any,
    *,
    weight_of: Callable[[np.ndarray], np.ndarray] = np.ones_like,
    compensation: float = 0.0,
) -> optax.GradientTransformationExtraArgs:
    """Lets each worker's gradients arrive as late as a table says.

    Put it before a reducer; the optimizer then steps along the mean of what has
    arrived, as a parameter server would.

    Args:
      axis_name: the axis, or a tuple (outer, inner), whose workers are counted host by
        host.
      delays: whole numbers [period, workers], 0 or more: `[[0, 0, 0, 3]]` is a worker
        that is three steps late; `random_delays` draws some.
      weight_of: from delays to their weights, floats or whole numbers of the same
        shape, such as `lambda d: 1 / np.maximum(d, 1)`.
      compensation: lambda, 0 or more; 0.04 is published.

    Returns:
      A gradient transformation, for real floating leaves. Its `update` needs `params`
      with a compensation.

    Raises:
      ValueError: delays that are no table of whole numbers of 0 or more, a
        compensation below 0; in `update`: as many columns as there are workers are
        missing, another tree than `init` saw, no params, a `weight`.
      NameError: `update` outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp, relaxjax
      >>> tx = relaxjax.bounded_staleness("data", [[0, 1]])  # the second is late
      >>> def train(g):
      ...     state, seen = tx.init(g), []
      ...     for t in range(1, 4):
      ...         out, state = tx.update(t * g, state)
      ...         seen.append(out)
      ...     return jnp.stack(seen)
      >>> print(jax.vmap(train, axis_name="data")(jnp.array([1.0, 10.0])))
      [[ 1.  2.  3.]
       [ 0. 10. 20.]]
    """
    table = _checked(delays)
    weights = np.asarray(weight_of(table), np.float32)
    if not compensation >= 0:
        raise ValueError(
            f"{_CALLER}: compensation={compensation} must be 0 (none) or more"
        )
    most = int(table.max())

    def parts(g: Any, params: Any, w: jax.Array) -> Any:
        """What travels: sums of it can be compensated when they arrive."""
        if not compensation:
            return (jax.tree.map(lambda g: w.astype(g.dtype) * g, g),)
        require_params(params, _CALLER, "which compensation compares")
        slope = jax.tree.map(lambda g: w.astype(g.dtype) * compensation * g * g, g)
        plain = jax.tree.map(
            lambda g, s, x: w.astype(g.dtype) * g - s * x, g, slope, params
        )
        return plain, slope

    def init(params: optax.Params) -> Any:
        kinds = 2 if compensation else 1
        arriving = (
            tuple(jax.tree.map(jnp.zeros_like, params) for _ in range(kinds))
            for _ in range(most)
        )
        step = jnp.zeros((), jnp.int32)
        return BoundedStalenessState(step, tuple(arriving), layout_of(params))

    def update(updates, state, params=None, *, weight=None, **extra_args) -> Any:
        del extra_args
        refuse_weight(weight, _CALLER)
        require_same(state.layout, updates, _CALLER)
        _require_columns(table, axis_size(axis_name, _CALLER))
        place = state.step, lax.axis_index(axis_name)
        due = jnp.asarray(table, jnp.int32)[place]
        new = parts(updates, params, jnp.asarray(weights)[place])
        nothing = jax.tree.map(jnp.zeros_like, new)
        now, *later = (
            jax.tree.map(lambda a, x, k=k: a + jnp.where(due == k, x, 0), slot, new)
            for k, slot in enumerate([*state.arriving, nothing])
        )
        out, *slope = now
        if slope:
            out = jax.tree.map(lambda o, s, x: o + s * x, out, slope[0], params)
        step = (state.step + 1) % len(table)
        return out, BoundedStalenessState(step, tuple(later), state.layout)

    return optax.GradientTransformationExtraArgs(init, update)


def _checked(delays: Any) -> np.ndarray:
    table = np.asarray(delays)
    if table.ndim != 2 or not table.size or table.dtype.kind not in "iu":
        raise ValueError(
            f"{_CALLER}: delays of shape {table.shape} and dtype {table.dtype} must be "
            "whole numbers [period, workers], such as [[0, 0, 0, 3]]"
        )
    if table.min() < 0:
        raise ValueError(
            f"{_CALLER}: delays hold {table.min()}, and must be 0 or more: nothing "
            "arrives before it is sent"
        )
    return table


def _require_columns(table: np.ndarray, n: int) -> None:
    if table.shape[1] != n:
        raise ValueError(
            f"{_CALLER}: delays have {table.shape[1]} columns and the axis has {n} "
            "workers: give one column for each"
        )

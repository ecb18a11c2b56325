"""Bounded staleness: gradients of slow workers arrive later, by a table of delays.

Source: stale synchronous parallel (Ho et al. 2013), made reproducible: at step t
worker i's gradient is d steps under way, with d = delays[t mod period, i], at most s.

    out_t = sum of w(d) g_u over the steps u of this worker with u + d_u = t

Nothing is lost and nothing counts twice: what has come out and what is under way is
all there was (with w = 1). Staleness-aware rates (Zhang et al. 2016) are w(d) =
1 / max(d, 1).

In lock step this is the mathematics of asynchronous training, and not its speed.

Cost: s gradients of this worker. Nothing is sent.
"""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from relaxjax._core._arrays import require_dtypes, require_same
from relaxjax._core._axis import AxisName, axis_size
from relaxjax._core._checks import require_table, require_whole
from relaxjax._core._merge_rules import EQUAL, MEAN
from relaxjax._core._owed import OWED_IN_TURN
from relaxjax._core._tree import Layout, layout_of
from relaxjax._core._weights import refuse_weight
from relaxjax._core.traced._marks import of_own_state

_CALLER = "bounded_staleness"


class StalenessTable(NamedTuple):
    """Delays of the workers of an axis, and trees that are under way as long.

    Attributes:
      caller: the method, for errors.
      axis_name: the workers' axes.
      table: int[period, workers], 0 or more.
    """

    caller: str
    axis_name: AxisName
    table: np.ndarray

    def nothing_arriving(self, tree: Any) -> tuple[Any, ...]:
        """What is under way at the start: zeros like the tree, for 1, 2 .. s steps."""
        return tuple(optax.tree.zeros_like(tree) for _ in range(int(self.table.max())))

    def entry(self, values: np.ndarray, step: jax.Array) -> jax.Array:
        """This worker's entry of a table of the same shape; NameError off the axis."""
        n, columns = axis_size(self.axis_name, self.caller), values.shape[1]
        if columns != n:
            raise ValueError(
                f"{self.caller}: delays have {columns} columns and the axis has {n} "
                "workers: give one column for each"
            )
        return jnp.asarray(values)[step, lax.axis_index(self.axis_name)]

    def pass_on(
        self, arriving: tuple[Any, ...], sent: Any, step: jax.Array
    ) -> tuple[Any, tuple[Any, ...]]:
        """The sum of what arrives now, and what is still under way.

        `arriving` holds what arrives in 0, 1, 2 .. steps, `sent` leaves at this step.
        Both results have the dtypes of `arriving`, which are those that `init` made.
        """
        late = self.entry(self.table, step)
        if arriving:
            sent = optax.tree.cast_like(sent, arriving[0])
        slots = [*arriving, optax.tree.zeros_like(sent)]
        now, *later = (
            jax.tree.map(lambda a, x, k=k: a + jnp.where(late == k, x, 0), slot, sent)
            for k, slot in enumerate(slots)
        )
        return now, tuple(later)


def staleness_table(caller: str, axis_name: AxisName, delays: Any) -> StalenessTable:
    """Checks a table of delays: whole numbers [period, workers], 0 or more."""
    rule = "whole numbers [period, workers], such as [[0, 0, 0, 3]]"
    table = require_table(caller, "delays", delays, "iu", rule)
    if table.min() < 0:
        raise ValueError(
            f"{caller}: delays hold {table.min()}, and must be 0 or more: nothing "
            "arrives before it is sent"
        )
    return StalenessTable(caller, axis_name, table)


def random_delays(
    workers: int, most: int, *, seed: int = 0, period: int = 64
) -> np.ndarray:
    """A table for `bounded_staleness` and `dc_asgd`, each delay equally likely.

    Args:
      workers: number of columns.
      most: the largest delay, 0 or more.
      seed: seed of the draws.
      period: number of rows.

    Returns:
      int64[period, workers].

    Raises:
      ValueError: an argument is not a whole number, `workers` or `period` is below 1,
        or `most` below 0.

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


class BoundedStalenessState(NamedTuple):
    """State of `bounded_staleness`.

    Attributes:
      step: int32, counted around the period; equal on all workers.
      arriving: the sum of what arrives in 1, 2 .. s steps.
      layout: the tree that `init` saw.
    """

    step: Annotated[jax.Array, EQUAL]
    arriving: Annotated[tuple[Any, ...], MEAN, OWED_IN_TURN]
    layout: Layout


def bounded_staleness(
    axis_name: AxisName,
    delays: Any,
    *,
    weight_of: Callable[[np.ndarray], np.ndarray] | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Lets each worker's gradients arrive as late as a table says.

    Put it before a reducer; the optimizer then steps along the mean of what has
    arrived, as a parameter server would. Gradients are under way in the dtypes of the
    params and come out in their own.

    Args:
      axis_name: the axis, or a tuple (outer, inner), whose workers are counted host by
        host.
      delays: whole numbers [period, workers], 0 or more: `[[0, 0, 0, 3]]` is a worker
        that is three steps late; `random_delays` draws a table.
      weight_of: from delays to their weights, floats or whole numbers of the same
        shape, such as `lambda d: 1 / np.maximum(d, 1)`; None: all weigh 1.

    Returns:
      A gradient transformation, for floating leaves.

    Raises:
      ValueError: `delays` is not a table of whole numbers of 0 or more; in `update`:
        not one column for each worker, another tree than `init` saw, a `weight`, which
        would be that of another batch.
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
    late = staleness_table(_CALLER, axis_name, delays)
    weights = np.asarray((weight_of or np.ones_like)(late.table), np.float32)

    def init(params: optax.Params) -> Any:
        require_dtypes(params, _CALLER, None)
        step, arriving = jnp.zeros((), jnp.int32), late.nothing_arriving(params)
        return BoundedStalenessState(step, arriving, layout_of(params))

    def update(updates, state, params=None, *, weight=None, **extra_args) -> Any:
        del params, extra_args
        refuse_weight(weight, _CALLER)
        require_same(state.layout, updates, _CALLER)
        w = late.entry(weights, state.step)
        sent = jax.tree.map(lambda g: w.astype(g.dtype) * g, updates)
        now, arriving = late.pass_on(state.arriving, sent, state.step)
        out = optax.tree.cast_like(now, updates)
        step = (state.step + 1) % len(late.table)
        return out, BoundedStalenessState(step, arriving, state.layout)

    return of_own_state(_CALLER, init, update)

"""Asynchronous DiLoCo: outer gradients arrive one by one, by a table.

Source: Liu et al. 2024, as the authors' notebook has it. Worker i steps from the model
b_i that it has fetched last; when it is done, the common model a, which others have
moved in the meantime, takes its outer gradient, and the worker fetches it:

    x_i <- x_i + u_i                  (each step)
    a   <- a + O(b_i - x_i)           (worker i arrives)
    x_i, b_i <- a

Who arrives when is a table, and workers that arrive in one step do so in its order, so
that every run is the same, and the log of one is a table that can be run again. O is
any optimizer, such as `relaxjax.local_updates.late._delayed_nesterov`'s.

    all workers arrive in each H-th step, O = SGD(1 / n):  local SGD with H, where in
    each round those that arrive early begin without the later ones

With dynamic local updates (DyLU) slow workers take fewer steps for each arrival, H v_i
/ max v, so that all arrive about as often: see `arrival_table`.

In lock step this is the mathematics of workers that do not wait, and saves no time.

Cost: an all-reduce of the params in float32 for each arrival. State: that of DiLoCo,
and b_i.
"""

import functools
from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from relaxjax._core._axis import AxisName, axis_size
from relaxjax._core._checks import require_table, require_transformation, require_whole
from relaxjax._core._cond import when
from relaxjax._core._local import LocalState
from relaxjax._core._merge_rules import EQUAL, MEAN
from relaxjax._core._tree import layout_of, wide_copy
from relaxjax._core.traced._marks import marked, whole_method
from relaxjax.compression import Compressor
from relaxjax.local_updates.common._local_steps import ExchangeSpec, outer_gradient
from relaxjax.local_updates.common._tokens import tokens_of
from relaxjax.local_updates.periodic._diloco import AnchorState, OuterStep, outer_step

_CALLER = "asynchronous_diloco"
_NOBODY = -1


class AsynchronousDilocoState(NamedTuple):
    """State of the outer half of `asynchronous_diloco`.

    Attributes:
      step: int32, the number of steps, modulo the table's; equal on all workers.
      kept: the common model a, and the outer optimizer's state.
      fetched: b_i, in float32 where a param is narrower.
      leaves: the leaves that differ between workers.
    """

    step: Annotated[jax.Array, EQUAL]
    kept: AnchorState
    fetched: Annotated[Any, MEAN]
    leaves: Annotated[LocalState, MEAN]


def asynchronous_diloco(
    inner: optax.GradientTransformation,
    axis_name: AxisName,
    arrivals: Any,
    outer: optax.GradientTransformation,
    *,
    tokens: Any = None,
    compressor: Compressor | None = None,
    algorithm: str = "auto",
    bucket_bytes: int = 8 * 2**20,
    specs: Any = None,
    seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
    """An optimizer whose workers bring outer gradients at times of their own.

    Experimental: this may change in any release.

    Args:
      inner: each worker's optimizer, which sees its own gradients.
      axis_name: the axis, or a tuple (outer, inner), whose workers are counted host by
        host.
      arrivals: whole numbers [period, slots]: after step t the workers in row t
        arrive, in its order; -1 is nobody.
      outer: the optimizer of single outer gradients, such as
        `relaxjax.delayed_nesterov(0.7, every=n)`.
      tokens: numbers of 0 or more [period, workers] with a row for each step; a worker
        with 0 stands still in that step. None: all go on.
      compressor: see `relaxjax.diloco`; its feedback waits for the next arrival.
      algorithm: see `relaxjax.all_reduce`.
      bucket_bytes: see `relaxjax.all_reduce`.
      specs: see `relaxjax.all_reduce`.
      seed: the seed of random compressors.

    Returns:
      A gradient transformation, as in `relaxjax.diloco`, without `weight=`.

    Raises:
      TypeError: in `init`: an outer optimizer that needs a loss or other arguments.
      ValueError: a table that is not one, or in which nobody arrives, or somebody twice
        in a step; what `relaxjax.diloco` refuses; in `update`: a worker that does not
        exist, a `weight`.
      NameError: `update` outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp, optax, relaxjax
      >>> tx = relaxjax.asynchronous_diloco(
      ...     optax.sgd(1.0), "data", [[0, 1]], optax.sgd(0.5)
      ... )
      >>> def train(gradient):
      ...     x = jnp.float32(0)
      ...     updates, _ = tx.update(gradient, tx.init(x), x)
      ...     return optax.apply_updates(x, updates)
      >>> print(jax.vmap(train, axis_name="data")(jnp.array([2.0, 4.0])))
      [-1. -3.]
    """
    require_transformation("asynchronous_diloco", "inner", inner)
    table = _checked(arrivals)
    first = tokens_of(_CALLER, axis_name, tokens).standing_still(inner)
    exchange = ExchangeSpec(
        _CALLER, axis_name, compressor, algorithm, bucket_bytes, specs, seed
    )
    rule = outer_step(exchange, outer)

    def init(params: optax.Params) -> AsynchronousDilocoState:
        step, leaves = jnp.zeros((), jnp.int32), LocalState(layout_of(params))
        fetched = wide_copy(params)
        return AsynchronousDilocoState(step, rule.init(params), fetched, leaves)

    def update(updates, state, params=None, *, weight=None, **extra_args) -> Any:
        del extra_args
        exchange.require(state, updates, params, weight)
        _require_workers(table, axis_name)
        step, kept, fetched, leaves = state
        u, x = (optax.tree.cast_like(t, kept.anchor) for t in (updates, params))
        row = jnp.asarray(table)[step % len(table)]
        arrive = functools.partial(_arrive, rule, axis_name, x)
        for slot in range(table.shape[1]):
            before = u, kept, fetched
            u, kept, fetched = when(row[slot] != _NOBODY, arrive, before, row[slot])
        after = (step + 1) % len(table)
        return u, AsynchronousDilocoState(after, kept, fetched, leaves)

    outer_half = marked(_CALLER, "models", axis_name, init, update)
    return whole_method(_CALLER, first, outer_half)


def _arrive(
    rule: OuterStep,
    axis_name: AxisName,
    x: Any,
    before: tuple[Any, AnchorState, Any],
    who: jax.Array,
) -> tuple[Any, AnchorState, Any]:
    """The update, a and b_i, after worker `who` has come and gone."""
    u, kept, fetched = before
    mine = lax.axis_index(axis_name) == who
    kept = rule.update(outer_gradient(fetched, x, u), kept, mine.astype(jnp.float32))
    u = optax.tree.where(mine, optax.tree.sub(kept.anchor, x), u)
    return u, kept, optax.tree.where(mine, kept.anchor, fetched)


def arrival_table(
    speeds: Sequence[float], sync_every: int, steps: int, *, dynamic: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """Who arrives, and who stands still, where workers are not equally fast.

    A step is one of the fastest worker; worker i takes every (max v / v_i)-th.

    Args:
      speeds: v, steps per second of each worker.
      sync_every: H, the steps of the fastest worker from one arrival to the next.
      steps: number of rows.
      dynamic: whether slow workers take H v_i / max v steps, at least 1, from one
        arrival to the next (DyLU); or all take H, and slow ones arrive seldom.

    Returns:
      The tables `arrivals`, int32[steps, slots], and `tokens`, int32[steps, workers],
      of `asynchronous_diloco`.

    Raises:
      ValueError: no speeds, or one that is not above 0 and finite; `sync_every` or
        `steps` is not a whole number of 1 or more; in so few steps nobody arrives.

    Example:
      >>> import relaxjax
      >>> arrivals, tokens = relaxjax.arrival_table([2.0, 1.0], 2, 4)
      >>> arrivals.tolist()
      [[-1, -1], [0, 1], [-1, -1], [0, 1]]
      >>> tokens.tolist()
      [[1, 0], [1, 1], [1, 0], [1, 1]]
    """
    require_whole("arrival_table", "sync_every", sync_every)
    require_whole("arrival_table", "steps", steps)
    if not len(speeds) or not all(np.isfinite(v) and v > 0 for v in speeds):
        raise ValueError(
            f"arrival_table: speeds={speeds!r} must be finite numbers above 0, one for "
            "each worker, such as [1.0, 1.0, 0.5]"
        )
    shares = [Fraction(v) / Fraction(max(speeds)) for v in speeds]
    done = np.array([[int(t * s) for s in shares] for t in range(steps + 1)])
    own = [max(1, int(sync_every * s)) if dynamic else sync_every for s in shares]
    tokens = np.diff(done, axis=0)
    there = (tokens > 0) & (done[1:] % own == 0)
    if not there.any():
        raise ValueError(
            f"arrival_table: in steps={steps} no worker has taken sync_every="
            f"{sync_every} steps: take more rows"
        )
    arrivals = np.full((steps, there.sum(axis=1).max()), _NOBODY)
    for row, here in zip(arrivals, there, strict=True):
        row[: here.sum()] = np.flatnonzero(here)
    return arrivals.astype(np.int32), tokens.astype(np.int32)


def _checked(arrivals: Any) -> np.ndarray:
    """The table, int32[period, slots]."""
    such_as = "a row for each step, such as [[-1], [0], [1]]"
    rule = f"whole numbers [period, slots] with {such_as}"
    table = require_table(_CALLER, "arrivals", arrivals, "iu", rule)
    if table.min() < _NOBODY or table.max() == _NOBODY:
        raise ValueError(
            f"{_CALLER}: arrivals hold {table.min()} to {table.max()}, and must be "
            "workers from 0 on, or -1 for nobody, with somebody in some row"
        )
    for step, row in enumerate(table):
        here = row[row != _NOBODY]
        if len(set(here)) < len(here):
            raise ValueError(
                f"{_CALLER}: arrivals[{step}]={row.tolist()} has a worker twice, which "
                "brings nothing the second time: name it once"
            )
    return table.astype(np.int32)


def _require_workers(table: np.ndarray, axis_name: AxisName) -> None:
    n = axis_size(axis_name, _CALLER)
    if table.max() >= n:
        raise ValueError(
            f"{_CALLER}: arrivals name worker {table.max()}, and the axis has {n} "
            f"workers, 0 to {n - 1}"
        )

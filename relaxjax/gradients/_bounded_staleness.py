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

from relaxjax._core._axis import AxisName
from relaxjax._core._merge_rules import EQUAL, MEAN
from relaxjax._core._tree import Layout, layout_of, require_same
from relaxjax._core._weights import refuse_weight
from relaxjax.gradients._delays import delays_of

_CALLER = "bounded_staleness"


class BoundedStalenessState(NamedTuple):
    """State of `bounded_staleness`.

    Attributes:
      step: int32, counted around the period; equal on all workers.
      arriving: for each number of steps from 1 to s, the sum of what arrives then.
      layout: the tree that `init` saw.
    """

    step: Annotated[jax.Array, EQUAL]
    arriving: Annotated[tuple[Any, ...], MEAN]
    layout: Layout


def bounded_staleness(
    axis_name: AxisName,
    delays: Any,
    *,
    weight_of: Callable[[np.ndarray], np.ndarray] = np.ones_like,
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

    Returns:
      A gradient transformation, for floating leaves.

    Raises:
      ValueError: delays that are no table of whole numbers of 0 or more; in `update`:
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
    late = delays_of(_CALLER, axis_name, delays)
    weights = np.asarray(weight_of(late.table), np.float32)

    def init(params: optax.Params) -> Any:
        step = jnp.zeros((), jnp.int32)
        return BoundedStalenessState(step, late.nothing(params), layout_of(params))

    def update(updates, state, params=None, *, weight=None, **extra_args) -> Any:
        del params, extra_args
        refuse_weight(weight, _CALLER)
        require_same(state.layout, updates, _CALLER)
        w = late.of(weights, state.step)
        sent = jax.tree.map(lambda g: w.astype(g.dtype) * g, updates)
        out, arriving = late.passed_on(state.arriving, sent, state.step)
        step = (state.step + 1) % len(late.table)
        return out, BoundedStalenessState(step, arriving, state.layout)

    return optax.GradientTransformationExtraArgs(init, update)

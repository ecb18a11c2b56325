"""Readings inside of a step: the same bits on all workers.

    agreement    r = |mean_i D_i|^2 / mean_i |D_i|^2     1 if all are equal, 1/n if
                                                         orthogonal, 0 if they cancel
    code error   (mean_i |p_i - c_i|^2 / mean_i |p_i|^2)^(1/2)
    leaf norms   |g_l|, of each leaf by name

A reading that is taken from updates before they meet is a mean over the workers here;
one of updates that are common is common already. A NaN anywhere is a NaN everywhere,
and the controller keeps its level.

Cost: agreement sends one float, the error of codes two; the mean is there anyway.
"""

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.experimental import multihost_utils

from relaxjax._core._arrays import own_names
from relaxjax._core._axis import AxisName
from relaxjax._core._checks import require_whole
from relaxjax._core._merge_rules import EQUAL
from relaxjax._core._tree import wide_copy, widened
from relaxjax._core._weights import is_absent, worker_weight


def agreement(
    own: Any, mean: Any, axis_name: AxisName, *, weight: Any = None
) -> jax.Array:
    """How far workers agree: 1 if all go the same way, 1/n if ways are orthogonal.

    Args:
      own: D_i, this worker's gradient, or its way since the last meeting.
      mean: their mean over the workers, a tree alike.
      axis_name: the axis, or a tuple of axes.
      weight: this worker's weight in the mean, 0 where it is absent; None: all count
        alike.

    Returns:
      float32[], in [0, 1], equal on all workers; NaN where all D_i are 0.

    Raises:
      NameError: outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from relaxjax.controllers import agreement
      >>> def r(d):
      ...     return agreement(d, jax.lax.pmean(d, "data"), "data")
      >>> print(jax.vmap(r, axis_name="data")(jnp.eye(2)))
      [0.5 0.5]
    """
    of_own = square(own)
    if weight is not None:
        share = worker_weight(weight, axis_name)
        of_own = jnp.where(is_absent(weight), 0, share * of_own)
    return square(mean) / lax.pmean(of_own, axis_name)


def code_error(lost: Any, whole: Any, axis_name: AxisName) -> jax.Array:
    """How much codes lose: 0 if nothing, 1 if as much as there was.

    Args:
      lost: p_i - c_i, such as the residual of `compression.error_feedback` after a
        step.
      whole: p_i, which was to be sent: the gradient and the residual before the step.
      axis_name: the axis, or a tuple of axes.

    Returns:
      float32[], 0 or more, equal on all workers; NaN where all p_i are 0.

    Raises:
      NameError: outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from relaxjax.controllers import code_error
      >>> def read(p):
      ...     return code_error(jnp.where(p < 1, p, 0), p, "data")
      >>> error = jax.vmap(read, axis_name="data")(jnp.array([[3.0, 4.0, 0.5, 0.1]]))
      >>> print(f"{error[0]:.4f}")
      0.1015
    """
    lost, whole = (lax.pmean(square(x), axis_name) for x in (lost, whole))
    return jnp.sqrt(lost / whole)


def of_first_process(seconds: float | Sequence[float]) -> Any:
    """Seconds as process 0 measured them, so that all processes decide alike.

    All processes call it.

    Args:
      seconds: one measurement, or several; as many in all processes.

    Returns:
      A float, or a list of floats; of several processes, rounded to float32.

    Example:
      >>> from relaxjax.controllers import of_first_process
      >>> of_first_process([0.25, 0.5])
      [0.25, 0.5]
    """
    if jax.process_count() == 1:
        return np.asarray(seconds, np.float64).tolist()
    given = np.asarray(seconds, np.float32)
    return np.asarray(multihost_utils.broadcast_one_to_all(given), float).tolist()


def leaf_norms(tree: Any) -> dict[str, jax.Array]:
    """The norm of each leaf, float32[], by its name; "" for a bare array."""
    leaves = zip(own_names(tree), jax.tree.leaves(tree), strict=True)
    return {name: jnp.sqrt(square(x)) for name, x in leaves}


def square(tree: Any) -> jax.Array:
    """|x|^2 over all leaves, in float32 or wider."""
    arrays = jax.tree.map(jnp.asarray, tree)
    return jnp.asarray(optax.tree.norm(widened(arrays), squared=True))


class NormsOfSums(NamedTuple):
    """State of `norms_of_sums`; equal on all workers.

    Attributes:
      step: int32[], steps since a period began.
      total: the updates of this period, added up, float32 or wider; of the last one
        until the next step begins another.
      norms: norms of the last whole period's sums, float32[] by the names of leaves;
        NaN before there is one.
    """

    step: Annotated[jax.Array, EQUAL]
    total: Annotated[Any, EQUAL]
    norms: Annotated[dict[str, jax.Array], EQUAL]


def norms_of_sums(every: int) -> optax.GradientTransformation:
    """Adds updates up over periods, and keeps the norms of the last one's sums.

    Put it after the reducer, where updates are common: `relaxjax.controllers.accordion`
    reads its norms after every `every`-th step. Updates come out as they came in.

    Args:
      every: steps of a period.

    Returns:
      A gradient transformation. Its state is a `NormsOfSums`.

    Raises:
      ValueError: `every < 1`.

    Example:
      >>> import jax.numpy as jnp
      >>> from relaxjax.controllers import norms_of_sums
      >>> tx = norms_of_sums(2)
      >>> state = tx.init({"w": jnp.zeros(2)})
      >>> for g in (jnp.array([1.0, 4.0]), jnp.array([2.0, 0.0])):
      ...     _, state = tx.update({"w": g}, state)
      >>> float(state.norms["w"])
      5.0
    """
    require_whole("controllers.norms_of_sums", "every", every)

    def init(params: Any) -> NormsOfSums:
        total = jax.tree.map(jnp.zeros_like, wide_copy(params))
        norms = {name: jnp.full((), jnp.nan, jnp.float32) for name in own_names(total)}
        return NormsOfSums(jnp.zeros((), jnp.int32), total, norms)

    def update(updates: Any, state: Any, params: Any = None) -> Any:
        del params
        begins, whole = state.step == 0, state.step + 1 == every
        total = jax.tree.map(
            lambda t, u: jnp.where(begins, 0, t) + u.astype(t.dtype),
            state.total,
            updates,
        )
        norms = {
            name: jnp.where(whole, new.astype(jnp.float32), state.norms[name])
            for name, new in leaf_norms(total).items()
        }
        return updates, NormsOfSums((state.step + 1) % every, total, norms)

    return optax.GradientTransformation(init, update)

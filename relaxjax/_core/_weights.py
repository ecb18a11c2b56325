"""Exact means over examples where workers hold different numbers of them.

With w_i examples at worker i, whose update u_i is the mean over its own:

    u <- sum_j w_j u_j / sum_j w_j          (op="mean"; 0 if no worker has an example)
    u <- sum_j w_j u_j                      (op="sum")

A worker without examples (w_i = 0) may hold 0/0: it is masked before the sum. A worker
that is absent from a round has weight zero. A negative weight makes every update NaN on
every worker, which `skip_nonfinite` sees.

Cost: one number more to all-reduce, which does not wait for the backward pass.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from relaxjax._core._axis import AxisName, axis_size
from relaxjax._core._tree import is_narrow, wide


def worker_weight(count: jax.Array | float, axis_name: AxisName) -> jax.Array:
    """The factor that turns the plain mean of gradients into a mean over examples.

    Scale the gradient by it in steps that cannot pass `weight=` to `tx.update`, such as
    those of flax's `TrainState.apply_gradients`. The gradient of a worker with a count
    of zero must be finite (divide the sum of its losses by `max(count, 1)`).

    Args:
      count: this worker's number of examples, or any other weight of 0 or more.
      axis_name: the axis, or a tuple of axes.

    Returns:
      float32[]: n count / (sum of counts); 0 if all are zero, NaN if any is negative.

    Raises:
      ValueError: `count` is not a scalar.
      NameError: outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp, relaxjax
      >>> weight = lambda count: relaxjax.worker_weight(count, "data")
      >>> print(jax.vmap(weight, axis_name="data")(jnp.array([1, 3, 0])))
      [0.75 2.25 0.  ]
    """
    axis_size(axis_name, "worker_weight")
    return _relative(count, axis_name, "worker_weight: count").astype(jnp.float32)


def factor(
    weight: jax.Array | float, axis_name: AxisName, op: str, compressor: Any = None
) -> jax.Array:
    """The factor of a worker's updates, before their mean or sum; a double in x64.

    Where a compressor's feedback remembers workers that are absent, the others do not
    stand in for them.
    """
    if op == "adasum":
        raise ValueError(
            "all_reduce: op='adasum' takes no weight=, as it is not a mean; use "
            "op='mean', or leave weight out"
        )
    if op == "mean":
        alone = compressor is not None and compressor.feedback.remembers
        relative = among_present if alone else _relative
        return relative(weight, axis_name, "all_reduce: weight")
    return checked_weight(weight, "all_reduce: weight")


def weigh(x: jax.Array, w: jax.Array) -> jax.Array:
    """`w x`, rounded once to the dtype of `x`; 0 where `w` is 0, whatever `x` holds."""
    return weigh_wide(x, w).astype(x.dtype)


def weigh_wide(x: jax.Array, w: jax.Array) -> jax.Array:
    """`w x` in float32 or wider, as it may be out of range where the mean is not."""
    return jnp.where(w == 0, 0, w.astype(wide(x.dtype)) * x.astype(wide(x.dtype)))


def weigh_tree(updates: Any, weight: Any, axis_name: AxisName) -> Any:
    """Each worker's part of a mean over examples, times the number of workers.

    With a weight in float32 or wider; without one, the updates as they are.
    """
    if weight is None:
        return updates
    w = factor(weight, axis_name, "mean")
    return jax.tree.map(lambda u: weigh_wide(u, w), updates)


def divide_narrow(updates: Any, like: Any, n: int) -> Any:
    """Updates over n where `like` is of narrow floats, before they are rounded."""
    return jax.tree.map(lambda u, x: u / n if is_narrow(x.dtype) else u, updates, like)


def is_absent(weight: Any) -> jax.Array:
    """bool[]: whether this worker is absent, of weight zero; False without weights."""
    return jnp.asarray(weight is not None and jnp.asarray(weight) == 0)


def unless_absent(weight: Any, new: Any, old: Any) -> Any:
    """`new`, or `old` on a worker that is absent."""
    if weight is None:
        return new
    absent = is_absent(weight)
    return jax.tree.map(lambda x, y: jnp.where(absent, y, x), new, old)


def unless_nobody(weight: Any, axis_name: AxisName, new: Any, old: Any) -> Any:
    """`new`, or `old` in a step in which every worker's weight is zero."""
    if weight is None:
        return new
    total = lax.psum(checked_weight(weight, "weight"), axis_name)
    return jax.tree.map(lambda x, y: jnp.where(total == 0, y, x), new, old)


def _relative(weight: jax.Array | float, axis_name: AxisName, what: str) -> jax.Array:
    """This worker's weight over the mean of all weights; 0 if all are 0."""
    w, n = checked_weight(weight, what), axis_size(axis_name, what)
    total = lax.psum(w, axis_name)
    return n * w / jnp.where(total == 0, 1, total)  # exactly 1 where all are equal


def among_present(
    weight: jax.Array | float, axis_name: AxisName, what: str
) -> jax.Array:
    """This worker's weight over the mean weight of those that have one."""
    w = checked_weight(weight, what)
    total, there = lax.psum((w, jnp.where(w == 0, 0.0, 1.0)), axis_name)
    return there * w / jnp.where(total == 0, 1, total)


def checked_weight(weight: jax.Array | float, what: str) -> jax.Array:
    """A scalar, wide; NaN in place of a number below 0, which is no weight."""
    w = jnp.asarray(weight, float)
    if w.shape:
        raise ValueError(
            f"{what} has shape {w.shape}, and must be a scalar: this worker's number "
            "of examples, such as mask.sum()"
        )
    return jnp.where(w < 0, jnp.nan, w)


def refuse_weight(weight: Any, caller: str) -> None:
    """Refuses a weight where models are averaged, all of which count alike."""
    if weight is not None:
        raise ValueError(
            f"{caller}: weight= has no meaning here, where every worker's model counts "
            "alike; leave it out, or a participation around it, or take all_reduce"
        )

"""The sum or mean over the workers of updates as they are.

divided before the sum:  floats of a narrow range (float16, 8 bits), which might
overflow; with weights, which multiply them in float32, all narrow floats
divided after it:        all others, which are rounded once less
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from relaxjax._core._axis import AxisName
from relaxjax._core._buckets import Bucket
from relaxjax._core._dtypes import is_narrow
from relaxjax._core._weights import weigh
from relaxjax.collectives import (
    adasum,
    bidirectional_ring_all_reduce,
    halving_doubling_all_reduce,
    hierarchical_all_reduce,
    one_shot_all_reduce,
    ring_all_reduce,
    tree_all_reduce,
    two_shot_all_reduce,
)
from relaxjax.gradients._packing import map_buckets, psum_groups

# Each sums one flat array over the axis. "psum" is not among them: it is XLA's own,
# takes many arrays in one message without packing them, and so has its own path below.
ALGORITHMS: dict[str, Callable[[jax.Array, AxisName], jax.Array]] = {
    "ring": ring_all_reduce,
    "bidirectional_ring": bidirectional_ring_all_reduce,
    "halving_doubling": halving_doubling_all_reduce,
    "tree": tree_all_reduce,
    "two_shot": two_shot_all_reduce,
    "one_shot": one_shot_all_reduce,
    "hierarchical": hierarchical_all_reduce,
}


def sum_or_mean(
    updates: Any,
    weight: jax.Array | None = None,
    *,
    axis_name: AxisName,
    algorithm: str,
    op: str,
    plan: Callable[[Any], tuple[Bucket, ...]],
    ordered: bool,
    divide: int,
) -> Any:
    """The sum over the workers, divided; or the Adasum.

    Args:
      updates: a pytree of floating (or complex) arrays.
      weight: float32[], this worker's factor, of `relaxjax._core._weights`.
      axis_name: the workers' axes.
      algorithm: "psum", or one of `ALGORITHMS`.
      op: of `relaxjax.all_reduce`.
      plan: from the tree to its buckets, or groups for psum.
      ordered: whether a group of psum waits for the one before.
      divide: by what.
    """
    leaves, tree = jax.tree.flatten(updates)
    leaves = [_before(x, weight, divide) for x in leaves]
    if op == "adasum":
        leaves = [adasum(x, axis_name) for x in leaves]
    elif algorithm == "psum":
        leaves = psum_groups(leaves, plan(updates), axis_name, ordered=ordered)
    elif leaves:
        total = ALGORITHMS[algorithm]
        (leaves,) = map_buckets(
            leaves, plan(updates), lambda x, _: (total(x, axis_name),)
        )
    weighted = weight is not None
    return jax.tree.unflatten(tree, [_after(x, weighted, divide) for x in leaves])


def _narrow_range(x: jax.Array) -> bool:
    """Whether a sum over workers may leave the dtype's range: float16, 8-bit floats."""
    return float(jnp.finfo(x.dtype).max) < 1e6


def _before(x: jax.Array, weight: jax.Array | None, divide: int) -> jax.Array:
    if weight is not None:
        return weigh(x, weight / divide if is_narrow(x.dtype) else weight)
    return x / divide if divide > 1 and _narrow_range(x) else x


def _after(x: jax.Array, weighted: bool, divide: int) -> jax.Array:
    divided = is_narrow(x.dtype) if weighted else _narrow_range(x)
    return x / divide if divide > 1 and not divided else x

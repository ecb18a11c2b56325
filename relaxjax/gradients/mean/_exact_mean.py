"""The sum or mean over the workers of updates as they are.

divided before the sum:  floats of a narrow range (float16, 8 bits), which might
overflow; with weights, which multiply them in float32, all narrow floats
divided after it:        all others, which are rounded once less
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from relaxjax._core._axis import AxisName, axis_size
from relaxjax._core._buckets import Bucket
from relaxjax._core._sharding import on_own_shards
from relaxjax._core._tree import is_narrow
from relaxjax._core._weights import weigh
from relaxjax.collectives import EXACT_EXCHANGES
from relaxjax.gradients.mean._packing import map_buckets, psum_groups

# psum takes many arrays in one message without packing them: it has its own path below.
ALGORITHMS = {k: exact.run for k, exact in EXACT_EXCHANGES.items() if k != "psum"}


def sum_or_mean(
    updates: Any,
    weight: jax.Array | None,
    *,
    axis_name: AxisName,
    algorithm: str,
    op: str,
    plan: Callable[[Any], tuple[Bucket, ...]],
    specs: Any,
    ordered: bool,
) -> Any:
    """The sum or the mean of a tree over the workers, by "psum" or one of `ALGORITHMS`.

    `weight`, float32[], multiplies this worker's updates (`relaxjax._core._weights`);
    `plan` gives buckets, or groups for psum, each of which waits for the one before it
    if `ordered`. With `specs=None` psum takes leaves that the compiler shards.
    """
    divide = axis_size(axis_name, "all_reduce") if op == "mean" else 1

    def reduced(updates: Any, *weights: jax.Array) -> Any:
        leaves, tree = jax.tree.flatten(updates)
        leaves = [_before(x, divide, *weights) for x in leaves]
        if algorithm == "psum":
            leaves = psum_groups(leaves, plan(updates), axis_name, ordered=ordered)
        elif leaves:
            total = ALGORITHMS[algorithm]
            (leaves,) = map_buckets(
                leaves, plan(updates), lambda x, _: (total(x, axis_name),)
            )
        return tree.unflatten([_after(x, bool(weights), divide) for x in leaves])

    weights = () if weight is None else (weight,)
    if specs is None:
        return reduced(updates, *weights)
    return on_own_shards(reduced, updates, specs, "all_reduce", *weights)


def _narrow_range(x: jax.Array) -> bool:
    """Whether a sum over workers may leave the dtype's range: float16, 8-bit floats."""
    return float(jnp.finfo(x.dtype).max) < 1e6


def _before(x: jax.Array, divide: int, weight: jax.Array | None = None) -> jax.Array:
    if weight is not None:
        return weigh(x, weight / divide if is_narrow(x.dtype) else weight)
    return x / divide if divide > 1 and _narrow_range(x) else x


def _after(x: jax.Array, weighted: bool, divide: int) -> jax.Array:
    divided = is_narrow(x.dtype) if weighted else _narrow_range(x)
    return x / divide if divide > 1 and not divided else x

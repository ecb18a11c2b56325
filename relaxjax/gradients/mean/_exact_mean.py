"""The sum or mean over the workers of updates as they are.

    divided after the sum   float32, bfloat16 and wider: rounded once less
    inside of it            floats of a narrow range (float16, 8 bits), whose sum may
                            overflow, and whose n-th part may be 0: added and divided in
                            float32, then rounded. For the same bytes psum over one axis
                            takes two shots here, since a backend adds in 16 bits
    before it               these, where that cannot be: by "tree", "halving_doubling",
                            psum over several axes or of leaves that the compiler
                            shards; and all narrow floats with weights, which multiply
                            them in float32

What is divided before loses values below half of n times the dtype's smallest, 6e-8 in
float16 (so 2e-6 for 64 workers), with a weight w below that over w. A hop of a ring
rounds the mean so far: tiny values are off by n / 2 times the smallest at most.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from relaxjax._core._axis import AxisName, axes_of, axis_size, compiler_axes
from relaxjax._core._buckets import Bucket
from relaxjax._core._sharding import on_own_shards
from relaxjax._core._tree import is_narrow
from relaxjax._core._weights import weigh
from relaxjax.collectives import EXACT_EXCHANGES
from relaxjax.gradients.mean._packing import map_buckets, psum_groups

# psum takes many arrays in one message without packing them: it has its own path below.
ALGORITHMS = {k: exact.run for k, exact in EXACT_EXCHANGES.items() if k != "psum"}

Exchange = Callable[[jax.Array, AxisName], jax.Array]


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
        mean = None
        if divide > 1 and not weights:
            mean = _mean_of_narrow(algorithm, axis_name)
        leaves, tree = jax.tree.flatten(updates)
        over = [1 if mean and _narrow_range(x) else divide for x in leaves]
        leaves = [_before(x, n, *weights) for x, n in zip(leaves, over, strict=True)]
        if algorithm == "psum":
            sums = partial(_psum_of_many, axis_name=axis_name, mean=mean)
            leaves = psum_groups(leaves, plan(updates), sums, ordered=ordered)
        elif leaves:
            total = ALGORITHMS[algorithm]

            def exchange(x: jax.Array, _: jax.Array) -> tuple[jax.Array]:
                run = mean if mean and _narrow_range(x) else total
                return (run(x, axis_name),)

            (leaves,) = map_buckets(leaves, plan(updates), exchange)
        after = zip(leaves, over, strict=True)
        return tree.unflatten([_after(x, bool(weights), n) for x, n in after])

    weights = () if weight is None else (weight,)
    if specs is None:
        return reduced(updates, *weights)
    return on_own_shards(reduced, updates, specs, "all_reduce", *weights)


def _mean_of_narrow(algorithm: str, axis_name: AxisName) -> Exchange | None:
    """The algorithm's own mean, where it costs no byte more than the sum."""
    if algorithm == "psum" and (len(axes_of(axis_name)) > 1 or compiler_axes()):
        return None
    return EXACT_EXCHANGES[algorithm].mean


def _psum_of_many(
    xs: list[jax.Array], axis_name: AxisName, mean: Exchange | None
) -> list[jax.Array]:
    """Sums in one psum; of floats of a narrow range the `mean`, if there is one."""
    alone = [mean is not None and _narrow_range(x) for x in xs]
    summed = [x for x, is_alone in zip(xs, alone, strict=True) if not is_alone]
    sums = iter(lax.psum(summed, axis_name)) if summed else iter(())
    pairs = zip(xs, alone, strict=True)
    return [mean(x, axis_name) if mean and own else next(sums) for x, own in pairs]


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

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

from relaxjax._core._axis import AxisName, axes_of, axis_size, on_devices
from relaxjax._core._buckets import Bucket
from relaxjax._core.layouts._sharding import on_own_shards
from relaxjax.collectives import EXACT_EXCHANGES
from relaxjax.gradients.mean._narrow_range import (
    after,
    before,
    mean_of_narrow,
    mean_or_sum,
    narrow_range,
    psum_of_many,
)
from relaxjax.gradients.mean._packing import SMALL, map_buckets, psum_groups

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

    `weight`, a number, multiplies this worker's updates (`relaxjax._core._weights`);
    `plan` gives buckets, or groups for psum, each of which waits for the one before it
    if `ordered`. With `specs=None` psum takes leaves that the compiler shards.
    """
    divide = axis_size(axis_name, "all_reduce") if op == "mean" else 1

    def reduced(updates: Any, *weights: jax.Array) -> Any:
        mean = None
        if divide > 1 and not weights:
            mean = mean_of_narrow(EXACT_EXCHANGES[algorithm].mean, algorithm, axis_name)
        leaves, tree = jax.tree.flatten(updates)
        over = [1 if mean and narrow_range(x) else divide for x in leaves]
        leaves = [before(x, n, *weights) for x, n in zip(leaves, over, strict=True)]
        if algorithm == "psum":
            sums = partial(psum_of_many, axis_name=axis_name, mean=mean)
            small = SMALL if any(map(on_devices, axes_of(axis_name))) else 0
            leaves = psum_groups(leaves, plan(updates), sums, ordered, small)
        elif leaves:
            exchange = mean_or_sum(ALGORITHMS[algorithm], mean, axis_name)
            (leaves,) = map_buckets(leaves, plan(updates), exchange)
        pairs = zip(leaves, over, strict=True)
        return tree.unflatten([after(x, bool(weights), n) for x, n in pairs])

    weights = () if weight is None else (weight,)
    if specs is None:
        return reduced(updates, *weights)
    return on_own_shards(reduced, updates, specs, "all_reduce", *weights)

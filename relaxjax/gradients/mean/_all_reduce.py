"""Synchronous data parallelism: every worker's update becomes their mean.

Source: Horovod (Sergeev and Del Balso 2018) for the one-line adoption and the fused
buckets; Li et al. 2020 (PyTorch DDP) for buckets in backward order.

    u_i <- (1/n) sum_j u_j            (op="mean")
    u_i <- sum_j u_j                  (op="sum")
    u_i <- Adasum of u_1 .. u_n       (op="adasum", each leaf by itself)
    u_i <- rule of u_1 .. u_n         (op=merges.median(), and other `relaxjax.merges`)

With `weight=` passed to `update`, the mean and sum are weighted
(`relaxjax._core._weights`); with `compressor=`, they are of what the payloads say
(`relaxjax.gradients.mean._compressed_mean`).

Cost: what the algorithm sends, per bucket: psum and ring both 2 (n - 1) ceil(d / n)
elements per worker, psum for each large leaf and for the small ones of a group
together, ring for each packed bucket of d elements; the others, and those with a
compressor, as stated in `relaxjax.collectives`.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import optax

from relaxjax._core._arrays import (
    require_dtypes,
    require_local,
    require_no_compiler_axes,
    require_same,
)
from relaxjax._core._axis import AxisName, axis_size
from relaxjax._core._buckets import plan_buckets, plan_groups
from relaxjax._core._sending_order import check_bucket_bytes
from relaxjax._core._tree import Layout, layout_of
from relaxjax._core._weights import factor
from relaxjax._core.layouts._sharding import sharded_over, unmasked
from relaxjax._core.traced._marks import marked
from relaxjax.collectives import adasum
from relaxjax.compression import Compressor
from relaxjax.gradients.mean._choices import (
    checked_algorithm,
    remark_on_loss,
    require_whole_tensors,
)
from relaxjax.gradients.mean._codec import side_of
from relaxjax.gradients.mean._compressed_mean import compressed_mean, init_compressed
from relaxjax.gradients.mean._exact_mean import sum_or_mean
from relaxjax.merges import Rule


class AllReduceState(NamedTuple):
    """State of `all_reduce`; without a compressor it never changes.

    Attributes:
      layout: the tree that `init` saw, to recognize another one (no array).
      compressed: feedback and randomness of a compressor.
    """

    layout: Layout
    compressed: Any = ()


def all_reduce(
    axis_name: AxisName,
    *,
    algorithm: str = "auto",
    compressor: Compressor | None = None,
    bucket_bytes: int = 8 * 2**20,
    order: Iterable[str] | None = None,
    op: str | Rule = "mean",
    specs: Any = None,
    seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
    """Replaces the updates of each worker by their mean (or sum) over the workers.

    Put it before the optimizer, so that every worker takes the same step. The result
    does not depend on `bucket_bytes` or `order` beyond the rounding of the algorithm.

    Args:
      axis_name: the axis, or a tuple (outer, inner).
      algorithm: `"psum"`, the backend's own all-reduce; `"ring"`, of point-to-point
        messages in which 16-bit floats travel as 16 bits, as in all that follow;
        `"bidirectional_ring"`, `"halving_doubling"`, `"tree"`, `"two_shot"`,
        `"one_shot"`; `"hierarchical"`, over exactly two axes; `"auto"`, which is
        `"psum"`, or with a compressor the one that suits it: `"two_shot"` for dense
        codes, `"one_shot"` for sparse ones, `"psum"` for linear ones.
      compressor: one of `relaxjax.compression`, with feedback or without: each bucket
        travels as its payload, by `"two_shot"`, `"one_shot"`, `"ring"`, over two axes
        by `"hierarchical"` (compressed between hosts only) or `"two_level"` (inside
        them as well), or by `"psum"` (linear ones).
      bucket_bytes: leaves travel together in messages of at most this many bytes,
        before compression and in float32 where there is one. The explicit algorithms
        pack them, and split larger leaves; psum takes groups of whole leaves and copies
        those of up to 64 KiB alone; Adasum takes leaf by leaf.
      order: leaf names (key paths such as `"layers/0/kernel"`) in the order in which
        gradients appear (`relaxjax.schedule.backward_order`), hence are sent. Default:
        reversed natural order, as the last layers' gradients appear first; psum and
        codes then form groups and buckets so, and each is sent as soon as its gradients
        exist (codes on CPU: one bucket after the other).
      op: `"mean"`, `"sum"`, `"adasum"` (see `relaxjax.collectives.adasum`; nothing is
        divided by n), or a rule of `relaxjax.merges` that stands wrong workers: by
        lengths (`clipped`, `rda`) with every algorithm and compressor, by rank or
        distance in two shots, with dense codes without feedback or none. Float16 and
        8-bit floats are added and divided in float32, where their sum might overflow or
        their n-th part vanish: psum over one axis sends their bits in two shots then.
        Not so with `weight=`, in "tree" and "halving_doubling" and by psum over several
        axes, or of leaves that the compiler shards: these divide before, and means
        below 3e-8 n are lost in float16.
      specs: where the mesh has other axes than the workers' (tensor parallelism, FSDP):
        a pytree of `PartitionSpec` over those, like the updates. Each device then
        sends its own shard, and nothing is gathered. Without it, only psum is allowed
        there.
      seed: seed of random compressors. Two reducers of one seed, as in
        `optax.partition`, draw the same numbers: give each its own.

    Returns:
      A gradient transformation, for floating (or complex) leaves of any shape and
      dtype; with a compressor for real ones, computed in float32. Shapes and dtypes
      stay. Its `update` takes `weight=`, this worker's number of examples: then the
      mean is over examples, and a worker of weight zero (an empty batch, an absence)
      counts for nothing, whatever it holds.

    Raises:
      ValueError: unknown `algorithm` or `op`, `bucket_bytes <= 0`, `"hierarchical"`
        or `"two_level"` without two axes, `"two_level"` without a compressor,
        `op="adasum"` with an algorithm or a compressor, a compressor with an algorithm
        that cannot carry it, a rule by rank or distance with another algorithm, a
        sparse or linear compressor, or feedback; in `init` or `update`: an `order`
        that is not a permutation of the leaf names, a leaf that is not floating (or for
        such a rule not real), another tree than `init` saw, gradients that are already
        reduced, a packing algorithm on leaves that the compiler shards, a `weight` that
        is not a scalar or beside Adasum, `specs` that do not fit the updates.
      NameError: `update` outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp, optax, relaxjax
      >>> tx = optax.chain(relaxjax.all_reduce("data"), optax.sgd(1.0))
      >>> def update(gradient):
      ...     updates, _ = tx.update(gradient, tx.init(gradient))
      ...     return updates
      >>> print(jax.vmap(update, axis_name="data")(jnp.array([1.0, 2.0, 6.0])))
      [-3. -3. -3.]
    """
    algorithm = checked_algorithm(axis_name, algorithm, compressor, op, specs)
    check_bucket_bytes(bucket_bytes)
    order = None if order is None else tuple(order)
    grouped = compressor is None and algorithm == "psum"
    plan = functools.partial(
        plan_groups if grouped else plan_buckets, bucket_bytes=bucket_bytes, order=order
    )
    how = {"axis_name": axis_name, "algorithm": algorithm}
    how["op"] = "mean" if isinstance(op, Rule) else op

    def init(params: optax.Params) -> Any:
        require_dtypes(params, "all_reduce", compressor and compressor.name)
        remark_on_loss("all_reduce", compressor)
        if jax.tree.leaves(params):
            plan(params)
        compressed = init_compressed(compressor, params, seed, how["op"])
        return AllReduceState(layout_of(params), compressed)

    def update(updates, state, params=None, *, weight=None, **extra_args):
        del params, extra_args
        axis_size(axis_name, "all_reduce")
        require_dtypes(updates, "all_reduce", compressor and compressor.name)
        require_same(state.layout, updates, "all_reduce")
        require_local(updates, axis_name, "all_reduce")
        if specs is None and not grouped:
            require_no_compiler_axes("all_reduce", f"{algorithm=}")
        shards = None if specs is None else unmasked(specs, updates)
        layouts = sharded_over(updates, shards)
        here = functools.partial(plan, layouts=layouts)
        on = {"plan": here, "specs": shards, "ordered": order is not None}
        if op == "adasum":
            require_whole_tensors(updates, layouts)
        mean = functools.partial(reduced, on)
        if isinstance(op, Rule):
            from relaxjax.gradients.mean._by_rule import merged_by

            mean = merged_by(op, mean, compressor, axis_name=axis_name, **on)
        out, compressed = mean(updates, state.compressed, weight)
        return out, state._replace(compressed=compressed)

    def reduced(on: Any, updates: Any, compressed: Any, weight: Any) -> Any:
        w = None if weight is None else factor(weight, axis_name, how["op"], compressor)
        if op == "adasum":
            return jax.tree.map(lambda x: adasum(x, axis_name), updates), compressed
        if compressor is None:
            return sum_or_mean(updates, w, **on, **how), compressed
        return compressed_mean(updates, compressed, w, compressor, **on, **how)

    return marked("all_reduce", side_of(compressor), axis_name, init, update)


def mean_over_workers(axis_name: AxisName, **how: Any) -> Callable[..., Any]:
    """`all_reduce` as a function of updates and a weight, with no state to keep."""
    tx = all_reduce(axis_name, **how)
    return lambda g, weight=None: tx.update(g, tx.init(g), weight=weight)[0]

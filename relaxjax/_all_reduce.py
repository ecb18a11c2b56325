"""Synchronous data parallelism: every worker's update becomes their mean.

Source: Horovod (Sergeev and Del Balso 2018) for the one-line adoption and the fused
buckets; Li et al. 2020 (PyTorch DDP) for buckets in backward order.

    u_i <- (1/n) sum_j u_j            (op="mean")
    u_i <- sum_j u_j                  (op="sum")
    u_i <- Adasum of u_1 .. u_n       (op="adasum", each leaf by itself)

With `weight=` passed to `update`, the mean and sum are weighted (`relaxjax._weights`);
with `compressor=`, they are of what the payloads say (`relaxjax._compressed`).

Cost: what the algorithm sends, per bucket: psum and ring both 2 (n - 1) ceil(d / n)
elements per worker, psum for each leaf, ring for each packed bucket of d elements; the
others, and those with a compressor, as stated in `relaxjax.collectives`.
"""

import functools
from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from relaxjax._axis import (
    AxisName,
    axes_of,
    axis_size,
    compiler_axes,
    require_local,
)
from relaxjax._compressed import EXCHANGES, init_compressed, mean_of_compressed
from relaxjax._exact import ALGORITHMS, sum_or_mean
from relaxjax._layout import Layout, layout_of, require_same
from relaxjax._specs import on_own_shards
from relaxjax._weights import factor, weigh
from relaxjax.collectives._hierarchical import two_axes
from relaxjax.compression import Compressor
from relaxjax.schedule import plan_buckets, plan_groups
from relaxjax.schedule._buckets import check_bucket_bytes

OPS = ("mean", "sum", "adasum")


class AllReduceState(NamedTuple):
    """State of `all_reduce`; without a compressor nothing that changes.

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
    op: str = "mean",
    specs: Any = None,
    seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
    """Replaces the updates of each worker by their mean (or sum) over the workers.

    Put it before the optimizer, so that every worker takes the same step. The result
    does not depend on `bucket_bytes` or `order` beyond the rounding of the algorithm.

    Args:
      axis_name: the axis, or a tuple (outer, inner).
      algorithm: `"psum"`, the backend's own all-reduce; `"ring"`, a ring of point to
        point messages in which 16-bit floats travel as 16 bits, as in all that follow;
        `"bidirectional_ring"`, `"halving_doubling"`, `"tree"`, `"two_shot"`,
        `"one_shot"`; `"hierarchical"`, over exactly two axes; `"auto"`, which is
        `"psum"`, or with a compressor what suits it: `"two_shot"` for dense codes,
        `"one_shot"` for sparse ones, `"psum"` for linear ones.
      compressor: of `relaxjax.compression`, with feedback or without: each bucket
        travels as its payload, by `"two_shot"`, `"one_shot"`, `"ring"`,
        `"hierarchical"` (compressed between hosts only), or `"psum"` (linear ones).
      bucket_bytes: leaves travel together in messages of at most this many bytes,
        before compression and in float32 where there is one. The explicit algorithms
        pack them, and split larger leaves; psum takes groups of whole leaves and copies
        nothing; Adasum takes leaf by leaf.
      order: leaf names (key paths such as `"layers/0/kernel"`) in the order in which
        gradients appear (`relaxjax.schedule.backward_order`), hence are sent. Default:
        reversed natural order, as the last layers' gradients appear first; psum then
        forms its groups so, and sends each as soon as its gradients exist.
      op: `"mean"`, `"sum"`, or `"adasum"` (see `relaxjax.collectives.adasum`; nothing
        is divided by n). The mean of float16 and 8-bit floats is divided before the
        sum, where the sum might overflow; of wider ones, after it.
      specs: where the mesh has other axes than the workers' (tensor parallelism, FSDP):
        a pytree of `PartitionSpec` over those, like the updates. Each device then
        sends its own shard, and nothing is gathered. Without it, only psum is allowed
        there.
      seed: of random compressors.

    Returns:
      A gradient transformation, for floating (or complex) leaves of any shape and
      dtype; with a compressor for real ones, computed in float32. Shapes and dtypes
      stay. Its `update` takes `weight=`, this worker's number of examples: then the
      mean is over examples, and a worker of weight zero (an empty batch, an absence)
      counts for nothing, whatever it holds.

    Raises:
      ValueError: unknown `algorithm` or `op`, `bucket_bytes <= 0`, `"hierarchical"`
        without two axes, `op="adasum"` with an algorithm or a compressor, a compressor
        with an algorithm that cannot carry it; in `init` or `update`: an
        `order` that is not a permutation of the leaf names, a leaf that is not
        floating, another tree than `init` saw, gradients that are already reduced, a
        packing algorithm on leaves that the compiler shards, a `weight` that is not
        a scalar or beside Adasum, `specs` that do not fit the updates.
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
    algorithm = _checked(axis_name, algorithm, compressor, op, specs)
    check_bucket_bytes(bucket_bytes)
    order = None if order is None else tuple(order)
    grouped = compressor is None and algorithm == "psum"
    plan = functools.partial(
        plan_groups if grouped else plan_buckets, bucket_bytes=bucket_bytes, order=order
    )

    def init(params: optax.Params) -> Any:
        _require_dtypes(params, compressor)
        if jax.tree.leaves(params):
            plan(params)
        if compressor is None:
            return AllReduceState(layout_of(params))
        return AllReduceState(
            layout_of(params), init_compressed(compressor, params, seed)
        )

    def update(updates, state, params=None, *, weight=None, **extra_args):
        del params, extra_args
        n = axis_size(axis_name, "all_reduce")
        _require_dtypes(updates, compressor)
        require_same(state.layout, updates, "all_reduce")
        require_local(updates, axis_name, "all_reduce")
        if specs is None and not grouped and op != "adasum":
            _require_no_compiler_axes(algorithm)
        w = None if weight is None else factor(weight, axis_name, op)
        if compressor is not None:
            mean, compressed = mean_of_compressed(
                _weighted(updates, w if w is None or op == "sum" else n * w),
                state.compressed,
                compressor=compressor,
                algorithm=algorithm,
                axis_name=axis_name,
                plan=plan,
                specs=specs,
            )
            out = jax.tree.map(lambda x: n * x, mean) if op == "sum" else mean
            return out, state._replace(compressed=compressed)
        reduce = functools.partial(
            sum_or_mean,
            axis_name=axis_name,
            algorithm=algorithm,
            op=op,
            plan=plan,
            ordered=order is not None,
            divide=n if op == "mean" and w is None else 1,
        )
        updates = _weighted(updates, w)
        if specs is None:
            return reduce(updates), state
        return on_own_shards(reduce, updates, specs, "all_reduce"), state

    return optax.GradientTransformationExtraArgs(init, update)


def _weighted(updates: Any, w: jax.Array | None) -> Any:
    return updates if w is None else jax.tree.map(lambda u: weigh(u, w), updates)


def _checked(
    axis_name: AxisName,
    algorithm: str,
    compressor: Compressor | None,
    op: str,
    specs: Any,
) -> str:
    """The algorithm, with "auto" resolved, or an error for what cannot be."""
    axes_of(axis_name)
    _check_choice("algorithm", algorithm, ("auto", "psum", *ALGORITHMS))
    _check_choice("op", op, OPS)
    if not isinstance(compressor, Compressor | None):
        raise TypeError(
            f"all_reduce: compressor={compressor!r} is not a Compressor; make one with "
            "relaxjax.compression, such as relaxjax.compression.quantize(8)"
        )
    if op == "adasum":
        _check_adasum(algorithm, compressor, specs)
    if algorithm == "auto":
        algorithm = "psum" if compressor is None else compressor.algorithm
    if algorithm == "hierarchical":
        two_axes(axis_name, "all_reduce with algorithm='hierarchical'")
    if compressor is not None:
        _check_compressor(algorithm, compressor)
    return algorithm


def _check_choice(name: str, value: str, valid: tuple[str, ...]) -> None:
    if value not in valid:
        raise ValueError(f"{name}={value!r} is not one of {', '.join(valid)}")


def _check_adasum(algorithm: str, compressor: Compressor | None, specs: Any) -> None:
    if specs is not None:
        raise ValueError(
            "op='adasum' takes no specs=: its coefficients belong to whole tensors, of "
            "which a device has a shard; use op='mean'"
        )
    if algorithm != "auto":
        raise ValueError(
            f"op='adasum' with algorithm={algorithm!r}: Adasum is no sum, and has an "
            "exchange of its own, leaf by leaf; leave algorithm at 'auto'"
        )
    if compressor is not None:
        raise ValueError(
            f"op='adasum' with compressor={compressor.name}: Adasum's coefficients are "
            "of whole tensors, and its exchange carries no payload; use op='mean'"
        )


def _check_compressor(algorithm: str, compressor: Compressor) -> None:
    if algorithm not in EXCHANGES:
        raise ValueError(
            f"all_reduce: algorithm={algorithm!r} carries no compressor: it would "
            "encode anew at each level, for no fewer bytes than 'two_shot'; use one of "
            + ", ".join(EXCHANGES)
        )
    if algorithm == "psum" and not compressor.law.linear:
        raise ValueError(
            "all_reduce: algorithm='psum' adds payloads, and those of "
            f"{compressor.name} cannot be added before they are decoded; use "
            "'two_shot' or 'one_shot', or a linear compressor such as random_k"
        )


def _require_dtypes(tree: Any, compressor: Compressor | None) -> None:
    kind = jnp.inexact if compressor is None else jnp.floating
    for path, leaf in jax.tree.leaves_with_path(tree):
        dtype = jax.typeof(leaf).dtype
        if not jnp.issubdtype(dtype, kind):
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            what = (
                "which has no mean: only floating (or complex) leaves are reduced"
                if compressor is None
                else f"and {compressor.name} compresses real floating leaves only"
            )
            raise ValueError(
                f"all_reduce: leaf {name!r} is {dtype}, {what}. Keep it out of the "
                "params that are trained, or wrap: "
                "optax.masked(relaxjax.all_reduce(...), mask)"
            )


def _require_no_compiler_axes(algorithm: str) -> None:
    if compiler_axes():
        raise ValueError(
            f"all_reduce: algorithm={algorithm!r} packs leaves into flat buckets, "
            f"which would gather what the compiler shards over {compiler_axes()}. Pass "
            "specs= (a PartitionSpec over those axes for each leaf), or use "
            "algorithm='psum'"
        )

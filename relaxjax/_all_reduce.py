"""Synchronous data parallelism: every worker's update becomes their mean.

Source: Horovod (Sergeev and Del Balso 2018) for the one-line adoption and the fused
buckets; Li et al. 2020 (PyTorch DDP) for buckets in backward order.

    u_i <- (1/n) sum_j u_j            (op="mean")
    u_i <- sum_j u_j                  (op="sum")
    u_i <- Adasum of u_1 .. u_n       (op="adasum", each leaf by itself)

With `weight=` passed to `update`, the mean and sum are weighted (`relaxjax._weights`).

Cost: what the algorithm sends, per bucket: psum and ring both 2 (n - 1) ceil(d / n)
elements per worker, psum for each leaf, ring for each packed bucket of d elements; the
others as stated in `relaxjax.collectives`.
"""

from collections.abc import Callable, Iterable
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
from relaxjax._fused import packed, psum_groups
from relaxjax._layout import Layout, layout_of, require_same
from relaxjax._specs import on_own_shards
from relaxjax._weights import factor, weigh
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
from relaxjax.collectives._hierarchical import two_axes
from relaxjax.schedule import plan_buckets, plan_groups
from relaxjax.schedule._buckets import check_bucket_bytes

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
OPS = ("mean", "sum", "adasum")


class AllReduceState(NamedTuple):
    """State of `all_reduce`: nothing that changes.

    Attributes:
      layout: the tree that `init` saw, to recognize another one (no array).
    """

    layout: Layout


def all_reduce(
    axis_name: AxisName,
    *,
    algorithm: str = "auto",
    bucket_bytes: int = 8 * 2**20,
    order: Iterable[str] | None = None,
    op: str = "mean",
    specs: Any = None,
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
        `"psum"`.
      bucket_bytes: leaves travel together in messages of at most this many bytes. The
        explicit algorithms pack them, and split larger leaves; psum takes groups of
        whole leaves and copies nothing; Adasum takes leaf by leaf.
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

    Returns:
      A gradient transformation, for floating (or complex) leaves of any shape and
      dtype. Shapes and dtypes stay. Its `update` takes `weight=`, this worker's number
      of examples: then the mean is over examples, and a worker of weight zero (an
      empty batch, an absence) counts for nothing, whatever it holds.

    Raises:
      ValueError: unknown `algorithm` or `op`, `bucket_bytes <= 0`, `"hierarchical"`
        without two axes, `op="adasum"` with an algorithm; in `init` or `update`: an
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
    axes_of(axis_name)
    _check_choice("algorithm", algorithm, ("auto", "psum", *ALGORITHMS))
    _check_choice("op", op, OPS)
    _check_op_and_axes(algorithm, op, axis_name, specs)
    check_bucket_bytes(bucket_bytes)
    order = None if order is None else tuple(order)
    plan = plan_groups if algorithm in ("auto", "psum") else plan_buckets

    def init(params: optax.Params) -> Any:
        _require_inexact(params)
        if jax.tree.leaves(params):
            plan(params, bucket_bytes=bucket_bytes, order=order)
        return AllReduceState(layout_of(params))

    def update(updates, state, params=None, *, weight=None, **extra_args):
        del params, extra_args
        n = axis_size(axis_name, "all_reduce")
        _require_inexact(updates)
        require_same(state.layout, updates, "all_reduce")
        require_local(updates, axis_name, "all_reduce")
        if weight is not None:
            w = factor(weight, axis_name, op)
            updates = jax.tree.map(lambda u: weigh(u, w), updates)
        divide = n if op == "mean" and weight is None else 1

        def reduce(updates):
            leaves, tree = jax.tree.flatten(updates)
            leaves = [_divide_before(x, divide) for x in leaves]
            buckets = plan(updates, bucket_bytes=bucket_bytes, order=order)
            if op == "adasum":
                leaves = [adasum(x, axis_name) for x in leaves]
            elif plan is plan_groups:
                ordered = order is not None
                leaves = psum_groups(leaves, buckets, axis_name, ordered=ordered)
            else:
                leaves = packed(leaves, buckets, axis_name, ALGORITHMS[algorithm])
            leaves = [_divide_after(x, divide) for x in leaves]
            return jax.tree.unflatten(tree, leaves)

        if specs is not None:
            return on_own_shards(reduce, updates, specs, "all_reduce"), state
        if plan is plan_buckets:
            _require_no_compiler_axes(algorithm)
        return reduce(updates), state

    return optax.GradientTransformationExtraArgs(init, update)


def _narrow_range(x: jax.Array) -> bool:
    """Whether a sum over workers may leave the dtype's range: float16, 8-bit floats."""
    return float(jnp.finfo(x.dtype).max) < 1e6


def _divide_before(x: jax.Array, divide: int) -> jax.Array:
    return x / divide if divide > 1 and _narrow_range(x) else x


def _divide_after(x: jax.Array, divide: int) -> jax.Array:
    return x / divide if divide > 1 and not _narrow_range(x) else x


def _check_choice(name: str, value: str, valid: tuple[str, ...]) -> None:
    if value not in valid:
        raise ValueError(f"{name}={value!r} is not one of {', '.join(valid)}")


def _check_op_and_axes(
    algorithm: str, op: str, axis_name: AxisName, specs: Any
) -> None:
    if algorithm == "hierarchical":
        two_axes(axis_name, "all_reduce with algorithm='hierarchical'")
    if op == "adasum" and specs is not None:
        raise ValueError(
            "op='adasum' takes no specs=: its coefficients belong to whole tensors, of "
            "which a device has a shard; use op='mean'"
        )
    if op == "adasum" and algorithm != "auto":
        raise ValueError(
            f"op='adasum' with algorithm={algorithm!r}: Adasum is no sum, and has an "
            "exchange of its own, leaf by leaf; leave algorithm at 'auto'"
        )


def _require_inexact(tree: Any) -> None:
    for path, leaf in jax.tree.leaves_with_path(tree):
        dtype = jax.typeof(leaf).dtype
        if not jnp.issubdtype(dtype, jnp.inexact):
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            raise ValueError(
                f"all_reduce: leaf {name!r} is {dtype}, which has no mean: only "
                "floating (or complex) leaves are reduced. Keep it out of the params "
                "that are trained, or wrap: optax.masked(relaxjax.all_reduce(...), "
                "mask)"
            )


def _require_no_compiler_axes(algorithm: str) -> None:
    if compiler_axes():
        raise ValueError(
            f"all_reduce: algorithm={algorithm!r} packs leaves into flat buckets, "
            f"which would gather what the compiler shards over {compiler_axes()}. Pass "
            "specs= (a PartitionSpec over those axes for each leaf), or use "
            "algorithm='psum'"
        )

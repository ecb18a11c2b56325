"""Matrices travel compressed, vectors and scalars as they are.

Biases, norms and scales are few and matter much; a code of few bits saves nothing on
them. Leaves of two dimensions and more are compressed, except those that leave so early
that the backward pass hides them anyway (`plain`, `relaxjax.schedule.sent_first`).

Cost: that of `all_reduce` with the compressor, and of psum for the vectors.
"""

import functools
from typing import Any

import jax
import optax

from relaxjax._core._arrays import require_arrays
from relaxjax._core._axis import AxisName
from relaxjax._core._checks import require_known, require_transformation
from relaxjax._core._sending_order import sent_first
from relaxjax.compression import Compressor, error_feedback, sign
from relaxjax.gradients.mean._all_reduce import all_reduce
from relaxjax.merges import Rule


def compress_matrices(
    axis_name: AxisName,
    compressor: Compressor | None = None,
    *,
    specs: Any = None,
    vectors: optax.GradientTransformation | None = None,
    plain: float = 0.0,
    algorithm: str = "auto",
    bucket_bytes: int = 8 * 2**20,
    op: str | Rule = "mean",
    seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
    """`all_reduce`, with the compressor where a leaf has two dimensions or more.

    Args:
      axis_name: the workers' axes.
      compressor: one of `relaxjax.compression`; None is `error_feedback(sign())`.
      specs: as in `all_reduce`.
      vectors: what follows the mean of the vectors, where the compressor's feedback
        does more to a matrix than to make up for a loss.
      plain: share of all elements, the first in sending order, that also travel as they
        are.
      algorithm: see `all_reduce`; that of the matrices.
      bucket_bytes: see `all_reduce`.
      op: see `all_reduce`.
      seed: see `all_reduce`.

    Returns:
      A gradient transformation, in place of `all_reduce` with the compressor. Its state
      is that of `optax.partition`, of both parts.

    Raises:
      TypeError: `vectors` is not a transformation; in `init`, a leaf is not an array.
      ValueError: what `all_reduce` refuses; `plain` is not between 0 and 1; in `init`,
        no leaf would be compressed.
      NameError: `update` outside the axis.

    Example:
      >>> import jax.numpy as jnp, relaxjax
      >>> from relaxjax import compression
      >>> tx = relaxjax.compress_matrices("data", compression.quantize(8))
      >>> params = {"kernel": jnp.zeros((64, 32)), "bias": jnp.zeros(32)}
      >>> relaxjax.wire_bytes(tx, params, relaxjax.emulate(2))
      2240
    """
    if vectors is not None:
        require_transformation("compress_matrices", "vectors", vectors)
    require_known("compress_matrices", "plain", plain)
    compressor = error_feedback(sign()) if compressor is None else compressor
    both: Any = {"specs": specs, "bucket_bytes": bucket_bytes, "op": op}
    how: Any = {"compressor": compressor, "algorithm": algorithm, "seed": seed}
    matrix = all_reduce(axis_name, **how, **both)
    sent_first((), plain)  # checks it
    vector = all_reduce(axis_name, **both)
    if vectors is not None:
        vector = optax.chain(vector, vectors)
    labels = functools.partial(label_leaves, plain=plain)
    reduce = optax.partition({"matrix": matrix, "vector": vector}, labels)

    def init(params: optax.Params) -> Any:
        require_arrays(params, "compress_matrices")
        kinds = jax.tree.leaves(labels(params))
        if kinds and "matrix" not in kinds:
            raise _nothing_compressed(compressor.name, plain)
        return reduce.init(params)

    return optax.GradientTransformationExtraArgs(init, reduce.update)


def _nothing_compressed(name: str, plain: float) -> ValueError:
    if plain:
        return ValueError(
            f"plain={plain:g} leaves no matrix for {name}: all are among the first "
            "elements that travel as they are; make it smaller"
        )
    return ValueError(
        f"{name} would compress nothing: it is for leaves of two dimensions or more, "
        "and these params are vectors and scalars; use relaxjax.all_reduce, which "
        "compresses whatever it is given"
    )


def label_leaves(tree: Any, plain: float = 0.0) -> Any:
    """For each leaf "matrix" or "vector", as `optax.partition` takes it.

    The share `plain` of all elements that is first in sending order is "vector" too.
    """
    return jax.tree.map(
        lambda x, early: "matrix" if x.ndim > 1 and not early else "vector",
        tree,
        sent_first(tree, plain),
    )


def reducer(
    axis_name: AxisName,
    compressor: Compressor | None = None,
    plain: float = 0.0,
    merge: Any = None,
    **how: Any,
) -> optax.GradientTransformationExtraArgs:
    """`compress_matrices`; without a compressor `all_reduce`, and `plain` must be 0.

    `merge` is the `op` of either, as rules of merges of models are called.
    """
    how |= {} if merge is None else {"op": merge}
    if compressor is not None:
        return compress_matrices(axis_name, compressor, plain=plain, **how)
    if plain:
        raise ValueError(
            f"plain={plain:g} is the share that a compressor leaves as it is, and "
            "compressor=None: name one, as in all_reduce+quantize8"
        )
    return all_reduce(axis_name, **how)

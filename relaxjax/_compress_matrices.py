"""Matrices travel compressed, vectors and scalars as they are.

Biases, norms and scales are few and matter much; a code of few bits saves nothing on
them. Of leaves of two dimensions and more the payloads are averaged.

Cost: of `all_reduce` with the compressor, and of psum for the vectors.
"""

from typing import Any

import jax
import optax

from relaxjax._all_reduce import all_reduce
from relaxjax._axis import AxisName
from relaxjax.compression import Compressor, error_feedback, sign


def compress_matrices(
    axis_name: AxisName,
    compressor: Compressor | None = None,
    *,
    specs: Any = None,
    vectors: optax.GradientTransformation | None = None,
    **how: Any,
) -> optax.GradientTransformationExtraArgs:
    """`all_reduce`, with the compressor where a leaf has two dimensions or more.

    Args:
      axis_name: the workers' axes.
      compressor: of `relaxjax.compression`; None is `error_feedback(sign())`.
      specs: as of `all_reduce`.
      vectors: what follows the mean of the vectors, where the compressor's feedback
        does more to a matrix than to make a loss good.
      **how: further arguments of `all_reduce`, for the matrices.

    Raises:
      ValueError: in `init`, no leaf has two dimensions.
    """
    compressor = error_feedback(sign()) if compressor is None else compressor
    all_reduce(axis_name, compressor=compressor, specs=specs, **how)  # checks early

    def parts(tree: Any) -> optax.GradientTransformationExtraArgs:
        kinds = kinds_of(tree)

        def only(kind: str) -> Any:
            if specs is None:
                return None
            return jax.tree.map(
                lambda k, spec: spec if k == kind else optax.MaskedNode(), kinds, specs
            )

        matrix = all_reduce(
            axis_name, compressor=compressor, specs=only("matrix"), **how
        )
        vector = all_reduce(axis_name, specs=only("vector"))
        if vectors is not None:
            vector = optax.chain(vector, vectors)
        return optax.partition({"matrix": matrix, "vector": vector}, kinds)

    def init(params: optax.Params) -> Any:
        leaves = jax.tree.leaves(params)
        if leaves and all(x.ndim < 2 for x in leaves):
            raise ValueError(
                f"{compressor.name} would compress nothing: it is for leaves of two "
                "dimensions or more, and these params are vectors and scalars; use "
                "relaxjax.all_reduce, which compresses whatever it is given"
            )
        return parts(params).init(params)

    def update(updates, state, params=None, **extra_args):
        return parts(updates).update(updates, state, params, **extra_args)

    return optax.GradientTransformationExtraArgs(init, update)


def kinds_of(tree: Any) -> Any:
    """For each leaf "matrix" or "vector", as `optax.partition` takes it."""
    return jax.tree.map(lambda x: "matrix" if x.ndim > 1 else "vector", tree)


def reducer_of(
    axis_name: AxisName, compressor: Compressor | None = None, **how: Any
) -> optax.GradientTransformationExtraArgs:
    """`all_reduce`; with a compressor, biases and norms stay as they are."""
    if compressor is None:
        return all_reduce(axis_name, **how)
    return compress_matrices(axis_name, compressor, **how)

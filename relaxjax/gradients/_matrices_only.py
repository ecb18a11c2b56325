"""Matrices travel compressed, vectors and scalars as they are.

Biases, norms and scales are few and matter much; a code of few bits saves nothing on
them. Of leaves of two dimensions and more the payloads are averaged; or of those of
them that are not sent so early that the backward pass hides them
(`relaxjax.schedule.sent_first`).

Cost: of `all_reduce` with the compressor, and of psum for the vectors.
"""

from typing import Any

import jax
import optax

from relaxjax._core._axis import AxisName
from relaxjax._core._buckets import sent_first
from relaxjax.compression import Compressor, error_feedback, sign
from relaxjax.gradients._all_reduce import all_reduce


def compress_matrices(
    axis_name: AxisName,
    compressor: Compressor | None = None,
    *,
    specs: Any = None,
    vectors: optax.GradientTransformation | None = None,
    plain: float = 0.0,
    **how: Any,
) -> optax.GradientTransformationExtraArgs:
    """`all_reduce`, with the compressor where a leaf has two dimensions or more.

    Args:
      axis_name: the workers' axes.
      compressor: of `relaxjax.compression`; None is `error_feedback(sign())`.
      specs: as of `all_reduce`.
      vectors: what follows the mean of the vectors, where the compressor's feedback
        does more to a matrix than to make a loss good.
      plain: share of all elements, the first in sending order, that travel as they are
        as well.
      **how: further arguments of `all_reduce`, for the matrices.

    Raises:
      ValueError: `plain` is not between 0 and 1; in `init`, no leaf that is compressed.
    """
    compressor = error_feedback(sign()) if compressor is None else compressor
    all_reduce(axis_name, compressor=compressor, specs=specs, **how)  # checks early
    sent_first((), plain)
    rest = {key: how[key] for key in ("bucket_bytes",) if key in how}

    def parts(tree: Any) -> optax.GradientTransformationExtraArgs:
        kinds = label_leaves(tree, plain)

        def only(kind: str) -> Any:
            if specs is None:
                return None
            return jax.tree.map(
                lambda k, spec: spec if k == kind else optax.MaskedNode(), kinds, specs
            )

        matrix = all_reduce(
            axis_name, compressor=compressor, specs=only("matrix"), **how
        )
        vector = all_reduce(axis_name, specs=only("vector"), **rest)
        if vectors is not None:
            vector = optax.chain(vector, vectors)
        return optax.partition({"matrix": matrix, "vector": vector}, kinds)

    def init(params: optax.Params) -> Any:
        kinds = jax.tree.leaves(label_leaves(params, plain))
        if kinds and "matrix" not in kinds:
            raise _nothing(compressor.name, plain)
        return parts(params).init(params)

    def update(updates, state, params=None, **extra_args):
        return parts(updates).update(updates, state, params, **extra_args)

    return optax.GradientTransformationExtraArgs(init, update)


def _nothing(name: str, plain: float) -> ValueError:
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

    Args:
      tree: params.
      plain: share of all elements, the first in sending order, that count as vectors.
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
    **how: Any,
) -> optax.GradientTransformationExtraArgs:
    """`all_reduce`; with a compressor, biases and norms stay as they are.

    Args:
      axis_name: the workers' axes.
      compressor: of the matrices.
      plain: as of `compress_matrices`.
      **how: further arguments of `all_reduce`.

    Raises:
      ValueError: `plain` without a compressor.
    """
    if compressor is not None:
        return compress_matrices(axis_name, compressor, plain=plain, **how)
    if plain:
        raise ValueError(
            f"plain={plain:g} is the share that a compressor leaves as it is, and "
            "there is none: name one, as in all_reduce+quantize8"
        )
    return all_reduce(axis_name, **how)

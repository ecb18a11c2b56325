"""Dion: orthonormal updates of low rank, from a momentum that each worker keeps.

Source: Dion (Ahn et al. 2025), as the authors' program has it. For every leaf as an
n x m matrix with n >= m, or else its transpose, the momentum M_i of worker i, and Q
(m x r), r a share of m:

    M_i <- M_i + g_i
    P   = mean_i(M_i Q)                       (first message)
    P^  = an orthonormal basis of P
    R_i = M_i^T P^,   R = mean_i(R_i)         (second message)
    M_i <- M_i - (1 - mu) P^ R_i^T
    Q   <- R with columns of length 1
    out = sqrt(n_out / n_in) P^ Q^T

There P^ R^T is taken from each M_i, with the mean R; here a worker takes back what it
sent itself, so that what M_i holds apart from the others shrinks as well. Their mean is
the same. It and `out` are exactly what one worker makes of the mean gradient: both
messages are linear.

P^ is of Householder reflections, not of Cholesky factors of a sketch. A column
of R that is 1e-6 of the longest, or 0, is rounding: `out` has no part of it, and Q gets
a random column instead, the same on all workers, for a direction that is lost would
never be found again. For momentum, weights and faults see
`relaxjax.gradients.momenta._decoupled_momentum`.

Cost: r (n + m) floats in two messages, each with 32, 16 or 8 bits; 6 r n m flops and a
QR of P. State: M_i and Q.
"""

import functools
import math
from collections.abc import Hashable, Sequence
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from relaxjax._core._axis import AxisName
from relaxjax._core._checks import require_fraction, require_known
from relaxjax._core._extremes import largest
from relaxjax._core._merge_rules import EQUAL, MEAN
from relaxjax._core._random import common_key, normals
from relaxjax._core._tree import Layout
from relaxjax.compression import over
from relaxjax.gradients.low_rank._bases import bases
from relaxjax.gradients.low_rank._lost_directions import NULL, with_lost_directions
from relaxjax.gradients.low_rank._low_rank import AsMatrices, Matrices, product
from relaxjax.gradients.momenta._decoupled_momentum import (
    MomentumSpec,
    Part,
    all_finite,
    by_shape,
    momentum_reducer,
)

_CALLER = "dion"


class DionState(NamedTuple):
    """State of `dion`.

    Attributes:
      step: uint32, the number of steps; equal on all workers.
      momentum: M_i, float32, like the params.
      right: Q, float32[batch, m, r], equal on all workers.
      layout: the tree that `init` saw.
    """

    step: Annotated[jax.Array, EQUAL]
    momentum: Annotated[Any, MEAN]
    right: Annotated[Any, EQUAL]
    layout: Layout


def dion(
    axis_name: AxisName,
    fraction: float = 0.25,
    *,
    decay: float = 0.95,
    bits: int = 32,
    algorithm: str = "auto",
    as_matrices: AsMatrices | None = None,
    seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
    """Replaces each worker's updates by orthonormal factors of the mean momentum.

    It is reducer and momentum in one, for matrices. Put `optax.sgd(0.01)` behind it,
    without momentum; between them `optax.add_decayed_weights(0.01)` for weight decay.
    Give vectors, embeddings and the head to another optimizer, by `optax.partition`.

    Args:
      axis_name: the axis, or a tuple (outer, inner).
      fraction: r over the shorter side, in (0, 1], rounded up.
      decay: mu, of what was sent, in [0, 1).
      bits: bits per float in both messages: 32, 16 (bfloat16) or 8 (codes of
        `relaxjax.compression.quantize`). What R loses stays in the momentum.
      algorithm: the algorithm that adds factors, one of `relaxjax.all_reduce`; with
        fewer bits than 32 one that carries codes, and "auto" is "two_shot".
      as_matrices: see `relaxjax.power_sgd`: (batch, n_in, n_out) of a leaf.
      seed: of the first Q, and of columns drawn anew.

    Returns:
      A gradient transformation, for real floating leaves of two dimensions or more,
      computed in float32. Its `update` takes `weight=`, this worker's number of
      examples.

    Raises:
      ValueError: `fraction` is not in (0, 1], `decay` not in [0, 1), `bits` not 32, 16
        or 8, the algorithm unknown or without codes; in `init` or `update`: a leaf is
        not a matrix, not real and floating, `as_matrices` does not fit, the tree is not
        the one that `init` saw, the compiler shards leaves.
      NameError: `update` outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp, relaxjax
      >>> tx = relaxjax.dion("data", 0.5)
      >>> gradients = jnp.array([[[5.0, 0.0], [0.0, 0.0]], [[3.0, 0.0], [0.0, 0.0]]])
      >>> update = lambda g: tx.update(g, tx.init(g))[0]
      >>> out = jax.vmap(update, axis_name="data")(gradients)
      >>> print(jnp.abs(out[0]).round(1))
      [[1. 0.]
       [0. 0.]]
    """
    spec = MomentumSpec(_CALLER, axis_name, decay, bits, algorithm, as_matrices)
    require_known(_CALLER, "fraction", fraction)
    require_fraction(_CALLER, "fraction", fraction)
    spec = spec.checked()

    def begin(matrices: list[Matrices]) -> list[jax.Array]:
        short = [(m.batch, min(m.rows, m.columns)) for m in matrices]
        shapes = [(b, n, math.ceil(round(fraction * n, 6))) for b, n in short]
        return normals(common_key(seed), shapes)

    step = functools.partial(_one_step, spec=spec, seed=seed)
    return momentum_reducer(spec, begin=begin, one_step=step, state_of=DionState)


def _one_step(
    x: list[jax.Array],
    matrices: list[Matrices],
    right: list[jax.Array],
    count: jax.Array,
    layouts: Sequence[Hashable],
    *,
    spec: MomentumSpec,
    seed: int,
) -> list[Part]:
    """What comes out, is sent and is kept of M_i, leaf by leaf."""
    wide = [m.rows < m.columns for m in matrices]
    tall = [m.mT if flip else m for m, flip in zip(x, wide, strict=True)]
    mean = spec.mean(spec.bits, layouts)
    p, _ = mean([product(m, q) for m, q in zip(tall, right, strict=True)])
    basis = bases([over(m, _largest(m)) for m in p])  # P^
    own = [product(m.mT, b) for m, b in zip(tall, basis, strict=True)]  # R_i
    r, lost = mean(own)
    key = jax.random.fold_in(common_key(seed), count)
    found = [_unit_columns(m) for m in r]
    new = with_lost_directions(found, key)  # Q

    def one(i: int) -> Part:
        def whole(r: jax.Array) -> jax.Array:
            full = product(basis[i], r.mT)
            return full.mT if wide[i] else full

        out = by_shape(x[i]) * whole(found[i])
        sound = all_finite(p[i], r[i])
        return Part(out, whole(own[i] - lost[i]), _unit_columns(new[i]), sound)

    return [one(i) for i in range(len(x))]


def _largest(m: jax.Array) -> jax.Array:
    return largest(m, (1, 2), keepdims=True)


def _unit_columns(r: jax.Array) -> jax.Array:
    """Columns of length 1, and 0 where they are next to nothing beside the longest."""
    r = over(r, _largest(r))  # no square of it is out of range
    norm = jnp.linalg.norm(r, axis=1, keepdims=True)
    there = norm > NULL * largest(norm, 2, keepdims=True)
    return jnp.where(there, r / jnp.where(there, norm, 1), 0)

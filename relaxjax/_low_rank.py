"""The mean over the workers of matrices, in low rank.

Source: Vogels, Karimireddy, Jaggi 2019 (PowerSGD), algorithm 1; for workers' matrices
M_i (n x m), and Q (m x r) from the step before:

    P  = mean_i(M_i Q)
    P^ = an orthonormal basis of P
    Q  = mean_i(M_i^T P^)
    out = P^ Q^T

It is linear: out = P^ P^^T mean_i(M_i), one step of subspace iteration of the mean.
Repeated for the same M, out tends to its best approximation of rank r.

Cost: r (n + m) floats in two messages; 6 r n m flops and a QR of P.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp


def low_rank_mean(
    m: list[jax.Array],
    q: list[jax.Array],
    plain: list[jax.Array],
    mean: Callable[[list[jax.Array]], list[jax.Array]],
    iterations: int,
) -> tuple[list[jax.Array], list[jax.Array], list[jax.Array]]:
    """The mean of the workers' matrices, in low rank.

    Args:
      m: this worker's, each float32[batch, n, m].
      q: as of the step before, float32[batch, m, r], equal on all workers.
      plain: arrays of any shape, that travel in the first message.
      mean: of arrays over the workers, in one message.
      iterations: how often P and Q are sent.

    Returns:
      The approximations, each like its m; the next q; the means of `plain`.
    """
    bases: list[jax.Array] = []
    for turn in range(iterations):
        sent = [_product(a, b) for a, b in zip(m, q, strict=True)]
        sent = mean([*sent, *plain] if turn == 0 else sent)
        plain = sent[len(m) :] if turn == 0 else plain
        bases = [orthonormal(p) for p in sent[: len(m)]]
        q = mean([_product(_transposed(a), b) for a, b in zip(m, bases, strict=True)])
    out = [_product(p, _transposed(b)) for p, b in zip(bases, q, strict=True)]
    return out, q, plain


def orthonormal(p: jax.Array) -> jax.Array:
    """An orthonormal basis of a space that holds the columns.

    By Householder reflections: where columns depend on each other, or are zero, the
    basis is filled up; nothing is divided by a norm.

    Args:
      p: float32[batch, n, r], r <= n.

    Returns:
      float32[batch, n, r].
    """
    return jnp.linalg.qr(p)[0]


def _product(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)


def _transposed(a: jax.Array) -> jax.Array:
    return jnp.swapaxes(a, -1, -2)

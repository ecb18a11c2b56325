"""The mean over the workers of matrices in low rank, and of the leaves of a tree.

Source: Vogels, Karimireddy, Jaggi 2019 (PowerSGD), algorithm 1; for workers' matrices
M_i (n x m), and Q (m x r) from the step before:

    P  = mean_i(M_i Q)
    P^ = an orthonormal basis of P
    Q  = mean_i(M_i^T P^)
    out = P^ Q^T

It is linear: out = P^ P^^T mean_i(M_i), one step of subspace iteration of the mean.
Repeated for the same M, out tends to its best approximation of rank r. Where the means
are of codes, leaves that are not approximated keep what is lost of them:

    x_i = g_i + e_i,  mean_i(x_i) = out + mean_i(e_i)

Cost: r (n + m) floats in two messages; 6 r n m flops and a QR of P.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from relaxjax.gradients._matricize import Matrices

Mean = Callable[[list[jax.Array]], tuple[list[jax.Array], list[jax.Array]]]
"""From arrays to their means over the workers, in one message, and what was lost."""


def nothing_lost(
    params: Any, found: list[Matrices | None], seed: int, *, coded: bool = False
) -> tuple[Any, Any]:
    """The residuals and the right factors before the first step.

    Args:
      params: a pytree of arrays.
      found: how each leaf, or a device's shard of it, is compressed; None: it is not.
      seed: of the right factors.
      coded: whether the other leaves lose something on their way as well.

    Returns:
      Two trees like the params, float32: zeros in the shapes of the leaves, and
      [shards * batch, m, r]; scalars where nothing is lost, or compressed.
    """
    leaves, tree = jax.tree.flatten(params)
    keys = [jax.random.fold_in(jax.random.key(seed), i) for i in range(len(leaves))]

    def first_right(leaf: jax.Array, m: Matrices, key: jax.Array) -> jax.Array:
        shards = leaf.size // (m.batch * m.rows * m.columns)
        shape = shards * m.batch, m.columns, m.rank
        return jax.random.normal(key, shape, jnp.float32)

    def none() -> jax.Array:  # each its own buffer: they may be donated
        return jnp.zeros((), jnp.float32)

    trios = list(zip(leaves, found, keys, strict=True))
    residual = [
        jnp.zeros(x.shape, jnp.float32) if m or coded else none() for x, m, _ in trios
    ]
    right = [first_right(x, m, key) if m else none() for x, m, key in trios]
    return tree.unflatten(residual), tree.unflatten(right)


def approximate(
    trees: Any,
    absent: jax.Array | bool = False,
    part: jax.Array | float = 1.0,
    *,
    matrices: Callable[[Any], list[Matrices | None]],
    mean: Mean,
    iterations: int,
    coded: bool = False,
) -> Any:
    """One step on one device's shards, whatever the means are of.

    Args:
      trees: updates, residuals and right factors.
      absent: bool[], whether this worker sends nothing, and keeps its residual.
      part: float32[], how many of all there are for each that is present.
      matrices: how each leaf is compressed.
      mean: of arrays over the workers, in one message.
      iterations: of the subspace.
      coded: whether leaves that are not approximated keep what is lost of them.

    Returns:
      The same three, after the step.
    """
    tree = jax.tree.structure(trees[0])
    leaves, e, q = map(jax.tree.leaves, trees)
    found = dict(enumerate(matrices(trees[0])))
    low = {i: m for i, m in found.items() if m}
    plain = [i for i in found if i not in low]
    wide = [u.astype(jnp.float32) for u in leaves]
    m = [as_matrix.of(wide[i] + e[i]) for i, as_matrix in low.items()]
    m = [jnp.where(absent, 0, x) for x in m]
    rest = [jnp.where(absent, 0, wide[i] + e[i]) if coded else wide[i] for i in plain]
    out, b, means, losts = low_rank_mean(m, [q[i] for i in low], rest, mean, iterations)
    for k, i in enumerate(low):
        lost = (m[k] - part * out[k]).reshape(e[i].shape)
        e[i] = jnp.where(absent, e[i], lost)
        q[i], wide[i] = b[k], out[k].reshape(e[i].shape)
    for k, i in enumerate(plain):
        wide[i] = means[k]
        if coded:
            e[i] = jnp.where(absent, e[i], 0) + losts[k]
    new = [x.astype(u.dtype) for x, u in zip(wide, leaves, strict=True)]
    return tuple(tree.unflatten(some) for some in (new, e, q))


def low_rank_mean(
    m: list[jax.Array],
    q: list[jax.Array],
    plain: list[jax.Array],
    mean: Mean,
    iterations: int,
) -> tuple[list[jax.Array], ...]:
    """The mean of the workers' matrices, in low rank.

    Args:
      m: this worker's, each float32[batch, n, m].
      q: as of the step before, float32[batch, m, r], equal on all workers.
      plain: arrays of any shape, that travel in the first message.
      mean: of arrays over the workers, in one message.
      iterations: how often P and Q are sent.

    Returns:
      The approximations, each like its m; the next q; the means of `plain`, and what
      was lost of them.
    """
    bases: list[jax.Array] = []
    means, losts = [], []
    for turn in range(iterations):
        sent = [_product(a, b) for a, b in zip(m, q, strict=True)]
        p, lost = mean([*sent, *plain] if turn == 0 else sent)
        if turn == 0:
            means, losts = p[len(m) :], lost[len(m) :]
        bases = [orthonormal(x) for x in p[: len(m)]]
        q, _ = mean(
            [_product(_transposed(a), b) for a, b in zip(m, bases, strict=True)]
        )
    out = [_product(p, _transposed(b)) for p, b in zip(bases, q, strict=True)]
    return out, q, means, losts


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

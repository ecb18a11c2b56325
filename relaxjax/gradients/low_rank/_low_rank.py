"""The mean over the workers of matrices in low rank, and of the leaves of a tree.

Source: Vogels, Karimireddy, Jaggi 2019 (PowerSGD), algorithm 1; for workers' matrices
M_i (n x m), and Q (m x r) from the step before:

    P  = mean_i(M_i Q)
    P^ = an orthonormal basis of P
    Q  = mean_i(M_i^T P^)
    out = P^ Q^T

It is linear: out = P^ P^^T mean_i(M_i), one step of subspace iteration of the mean.
Repeated for the same M, out tends to its best approximation of rank r. Where codes
travel, leaves that are not approximated keep what they lose:

    x_i = g_i + e_i,  mean_i(x_i) = out + mean_i(e_i)

Where the next step begins with the rest of M, orthonormal columns Q^ take the place of
Q in P, and the Q after it is (M - P Q^^T)^T P^ = Q - Q^ P^T P^.

Columns of Q that have lost their direction are drawn anew, alike on all workers
(`relaxjax.gradients.low_rank._lost_directions`). Where P or Q are not finite, Q and e
stay as they were, and `out` shows it.

Cost: r (n + m) floats in two messages; 6 r n m flops and a QR of P.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from relaxjax._core._arrays import own_names
from relaxjax._core._random import common_key, normals
from relaxjax.gradients.low_rank._bases import bases
from relaxjax.gradients.low_rank._lost_directions import with_lost_directions

AsMatrices = Callable[[str, tuple[int, ...]], tuple[int, int, int]]
"""From a leaf's name and shape to (batch, rows, columns)."""


class Matrices(NamedTuple):
    """A leaf as a batch of matrices, and the rank of what is sent of each."""

    batch: int
    rows: int
    columns: int
    rank: int

    def of(self, leaf: jax.Array) -> jax.Array:
        """The matrices, float32[batch, rows, columns]."""
        return leaf.reshape(self.batch, self.rows, self.columns)


def most_square(name: str, shape: tuple[int, ...]) -> tuple[int, int, int]:
    """(1, rows, columns) of a leaf, cut where rows + columns is least.

    Example:
      >>> from relaxjax.gradients.low_rank._low_rank import most_square
      >>> most_square("kernel", (3, 3, 64, 128))
      (1, 576, 128)
    """
    del name
    cuts = range(1, len(shape))
    sides = [(math.prod(shape[:cut]), math.prod(shape[cut:])) for cut in cuts]
    rows, columns = min(sides, key=sum, default=(math.prod(shape), 1))
    return 1, rows, columns


def cut_of(
    name: str, leaf: Any, as_matrices: AsMatrices | None, caller: str
) -> tuple[int, int, int]:
    """(batch, rows, columns) of a leaf; None cuts it as `most_square` does."""
    batch, rows, columns = (as_matrices or most_square)(name, leaf.shape)
    if batch * rows * columns != leaf.size:
        raise ValueError(
            f"{caller}: as_matrices made {batch} matrices of {rows} x {columns} "
            f"of leaf {name!r} of shape {leaf.shape}: the elements must be as many"
        )
    return batch, rows, columns


def matrices_of(
    tree: Any,
    *,
    rank: int,
    min_compression: float,
    as_matrices: AsMatrices | None,
    caller: str = "power_sgd",
) -> list[Matrices | None]:
    """How each leaf is compressed; None where it is not."""

    def one(name: str, leaf: Any) -> Matrices | None:
        if leaf.ndim < 2 or not leaf.size:
            return None
        batch, rows, columns = cut_of(name, leaf, as_matrices, caller)
        r = min(rank, rows, columns)
        sent = batch * r * (rows + columns)
        smaller = min_compression * sent < leaf.size
        return Matrices(batch, rows, columns, r) if smaller else None

    return [one(*x) for x in zip(own_names(tree), jax.tree.leaves(tree), strict=True)]


def nothing_to_compress(
    params: Any, rank: int, min_compression: float, caller: str
) -> ValueError:
    shapes = sorted({x.shape for x in jax.tree.leaves(params)}, key=math.prod)
    return ValueError(
        f"{caller}: rank={rank} compresses none of the leaves (the largest is "
        f"{shapes[-1]}): vectors and scalars travel as they are, and of an n x m "
        f"matrix {min_compression:g} * rank * (n + m) must be less than n * m. Lower "
        "the rank, or use relaxjax.all_reduce"
    )


Mean = Callable[[list[jax.Array]], tuple[list[jax.Array], list[jax.Array]]]
"""From arrays to their means over the workers, in one message, and what was lost."""


def init_factors(
    params: Any, matrices: list[Matrices | None], seed: int, *, coded: bool = False
) -> tuple[Any, Any]:
    """The residuals and the right factors before the first step, two float32 trees.

    Residuals are zeros in the shapes of the leaves, right factors [shards * batch, m,
    r]; scalars where a leaf loses nothing (if `coded`, all do), or is not compressed.
    """
    leaves, tree = jax.tree.flatten(params)
    pairs = list(zip(leaves, matrices, strict=True))
    shapes = [
        (x.size // (m.rows * m.columns), m.columns, m.rank) for x, m in pairs if m
    ]
    drawn = iter(normals(common_key(seed), shapes))
    residual = [jnp.zeros(x.shape if m or coded else (), jnp.float32) for x, m in pairs]
    right = [next(drawn) if m else jnp.zeros((), jnp.float32) for m in matrices]
    return tree.unflatten(residual), tree.unflatten(right)


def approximate(
    trees: Any,
    count: jax.Array | int = 0,
    absent: jax.Array | bool = False,
    part: jax.Array | float = 1.0,
    *,
    matrices: Callable[[Any], list[Matrices | None]],
    mean: Callable[[Sequence[Hashable]], Mean],
    layouts: Sequence[Hashable],
    iterations: int,
    rest: bool = False,
    coded: bool = False,
    seed: int = 0,
) -> Any:
    """Updates, residuals and right factors of one device's shards, after a step.

    `count`, the number of the step, and `seed` decide on lost directions. An absent
    worker sends nothing, and keeps its residual; `part` is n / n_present. `mean` is for
    arrays of these `layouts`, of which each leaf has one. If `coded`, leaves that are
    not approximated keep what they lose.
    """
    tree = jax.tree.structure(trees[0])
    leaves, e, q = map(jax.tree.leaves, trees)
    rows = dict(enumerate(matrices(trees[0])))
    low = {i: m for i, m in rows.items() if m}
    plain = [i for i in rows if i not in low]
    wide = [u.astype(jnp.float32) for u in leaves]
    m = [as_matrix.of(wide[i] + e[i]) for i, as_matrix in low.items()]
    m = [jnp.where(absent, 0, x) for x in m]
    whole = [jnp.where(absent, 0, wide[i] + e[i]) if coded else wide[i] for i in plain]
    send = mean([layouts[i] for i in [*low, *plain]])
    factors = [q[i] for i in low]
    out, b, means, losts = low_rank_mean(m, factors, whole, send, iterations, rest=rest)
    b = with_lost_directions(b, jax.random.fold_in(common_key(seed), count))
    for k, i in enumerate(low):
        shape, lost = e[i].shape, m[k] - part * out[k]
        sound = jnp.isfinite(b[k]).all((1, 2), keepdims=True)
        keep = absent | ~(sound & jnp.isfinite(lost))
        e[i] = jnp.where(keep, low[i].of(e[i]), lost).reshape(shape)
        q[i], wide[i] = jnp.where(sound, b[k], q[i]), out[k].reshape(shape)
    for k, i in enumerate(plain):
        wide[i] = means[k]
        if coded:
            lost = jnp.where(absent, e[i], 0) + losts[k]
            e[i] = jnp.where(jnp.isfinite(lost) & jnp.isfinite(means[k]), lost, e[i])
    new = [x.astype(u.dtype) for x, u in zip(wide, leaves, strict=True)]
    return tuple(map(tree.unflatten, (new, e, q)))


def low_rank_mean(
    m: list[jax.Array],
    q: list[jax.Array],
    plain: list[jax.Array],
    mean: Mean,
    iterations: int,
    *,
    rest: bool = False,
) -> tuple[list[jax.Array], ...]:
    """The mean of the workers' matrices, in low rank.

    Args:
      m: this worker's matrices, each float32[batch, n, m].
      q: right factors, float32[batch, m, r], equal on all workers.
      plain: arrays of any shape, which travel in the first message.
      mean: the mean of arrays over the workers, in one message.
      iterations: number of times that P and Q are sent.
      rest: whether the next q leaves out the directions of the q before.

    Returns:
      The approximations, each like its m; the next q; the means of `plain`, and what
      was lost of them.
    """
    p, basis, before = q, q, q  # of as many matrices
    means, losts = [], []
    for turn in range(iterations):
        before = bases(q) if rest else q
        sent = [product(a, b) for a, b in zip(m, before, strict=True)]
        p, lost = mean([*sent, *plain] if turn == 0 else sent)
        if turn == 0:
            means, losts = p[len(m) :], lost[len(m) :]
        p = p[: len(m)]
        basis = bases(p)
        q, _ = mean([product(a.mT, b) for a, b in zip(m, basis, strict=True)])
    out = [product(a, b.mT) for a, b in zip(basis, q, strict=True)]
    if rest:
        each = zip(q, before, p, basis, strict=True)
        q = [x - product(b, product(a.mT, c)) for x, b, a, c in each]
    return out, q, means, losts


def product(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)

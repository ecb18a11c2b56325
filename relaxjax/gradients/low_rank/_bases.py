"""Orthonormal bases of the columns of matrices, those of a shape together.

Source: Householder 1958; Golub, Van Loan, Matrix Computations, sections 5.1 and 5.2.
For x (n x r) and k = 1 ... r, with y = x_k from row k on, and 0 above:

    beta = -sign(y_k) |y|
    v    = (y - beta e_k) / |y - beta e_k|     0 where y is 0 below row k
    x    = x - 2 v (v^T x)                     x_k is (x_1k, ..., beta, 0, ..., 0) now
    Q    = H_1 ... H_r [I; 0],  H_k = I - 2 v_k v_k^T

Q spans what x spans, up to rounding. Nothing is divided by a column's norm that might
be 0: where columns depend on each other or are zero, Q has unit vectors beside them.

Cost: 4 n r^2 flops, in some ten kernels for each column and shape. A QR is a call of a
library for each matrix: on a GPU 43 matrices take cuSOLVER three to nine times as long
(docs/gpu.md), on a CPU LAPACK takes a quarter of the time. So CPUs are left to it, and
matrices of more columns than are written out here.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from relaxjax._core._extremes import largest
from relaxjax._core._pieces import cut
from relaxjax._core.layouts._sharding import alike
from relaxjax.compression import over

WRITTEN_OUT = 16  # columns, at most


def bases(matrices: list[jax.Array]) -> list[jax.Array]:
    """Orthonormal columns that span the columns of each float32[batch, n, r], n >= r.

    Matrices with a value that is not finite have none: NaN is in theirs. Squares of the
    values are to be in the range of float32.

    Example:
      >>> import jax.numpy as jnp
      >>> from relaxjax.gradients.low_rank._bases import bases
      >>> bases([jnp.array([[[3.0], [4.0]]])])[0].round(3).tolist()
      [[[-0.6000000238418579], [-0.800000011920929]]]
    """
    return lax.platform_dependent(matrices, cpu=_by_library, default=together)


def _by_library(matrices: list[jax.Array]) -> list[jax.Array]:
    return [jnp.linalg.qr(x)[0] for x in matrices]


def together(matrices: list[jax.Array]) -> list[jax.Array]:
    """Those of a shape as one batch, written out where they have few columns."""

    def basis(x: jax.Array) -> jax.Array:
        narrow = x.shape[2] <= WRITTEN_OUT
        return reflected(_over_largest(x)) if narrow else jnp.linalg.qr(x)[0]

    return of_each_shape(basis, matrices)


def of_each_shape(
    fn: Callable[[jax.Array], jax.Array], matrices: list[jax.Array]
) -> list[jax.Array]:
    """What `fn` makes of the matrices of a shape as one batch, for each matrix."""
    groups = alike([x.shape[1:] for x in matrices])
    made = [fn(batch) for batch in batched(matrices, groups)]
    return apart(made, groups, [len(x) for x in matrices])


def batched(arrays: list[jax.Array], groups: list[list[int]]) -> list[jax.Array]:
    """Those of each group as one batch."""
    return [jnp.concatenate([arrays[i] for i in group]) for group in groups]


def apart(
    batches: list[jax.Array], groups: list[list[int]], sizes: list[int]
) -> list[jax.Array]:
    """The parts of batches, of these sizes, in the order from which groups took them.

    Example:
      >>> import jax.numpy as jnp
      >>> from relaxjax.gradients.low_rank._bases import apart
      >>> batches = [jnp.arange(3), jnp.arange(4, 6)]
      >>> [x.tolist() for x in apart(batches, [[0, 2], [1]], [1, 2, 2])]
      [[0], [4, 5], [1, 2]]
    """
    found: dict[int, jax.Array] = {}
    for x, group in zip(batches, groups, strict=True):
        shapes = [(sizes[i], *x.shape[1:]) for i in group]
        found |= dict(zip(group, cut(x.ravel(), shapes), strict=True))
    return [found[i] for i in range(len(sizes))]


def reflected(x: jax.Array) -> jax.Array:
    """Q, [batch, n, r], of x whose largest value is about 1, column by column."""
    rows = lax.broadcasted_iota(jnp.int32, (x.shape[1], 1), 0)
    units: list[jax.Array] = []  # v of each column
    for k in range(x.shape[2]):
        y = _over_largest(jnp.where(rows >= k, x[:, :, k : k + 1], 0))
        head = y[:, k : k + 1]
        below = jnp.sum(jnp.where(rows > k, y**2, 0), 1, keepdims=True)
        beta = jnp.where(head < 0, 1, -1) * jnp.sqrt(head**2 + below)
        v = jnp.where(rows == k, head - beta, y)
        length = jnp.sqrt(jnp.sum(v**2, 1, keepdims=True))
        v = jnp.where(below == 0, 0 * v, v / length)
        # Else XLA for GPUs computes columns anew in the kernels of later ones.
        x, v = lax.optimization_barrier((_mirrored(x, v), v))
        units.append(v)
    columns = lax.broadcasted_iota(jnp.int32, (1, x.shape[2]), 1)
    q = jnp.broadcast_to((rows == columns).astype(x.dtype), x.shape)
    for v in units[::-1]:
        q = lax.optimization_barrier(_mirrored(q, v))
    return q


def _mirrored(x: jax.Array, v: jax.Array) -> jax.Array:
    """x - 2 v (v^T x), for v of length 1 or 0."""
    return x - 2 * v * jnp.sum(v * x, 1, keepdims=True)


def _over_largest(x: jax.Array) -> jax.Array:
    return over(x, largest(x, (1, 2), keepdims=True))

"""The mean of the workers' matrices in low rank, one factor a step, by one message.

Source: Zhang et al. 2023 (ACP-SGD). In even steps, of a matrix M_i (n x m) of each
worker, with Q of the last odd step:

    Q^  = an orthonormal basis of Q     (known before the matrix is)
    P_i = M_i Q^,   P = mean_i(P_i)     (the only message)
    out = P Q^^T,   lost_i = M_i - P_i Q^^T

and in odd steps the same of M_i^T, with Q_i, Q in the place of P_i, P. What P_i loses
on its way is in lost_i as well.

Both turns are one program, whose collective stands outside of every condition: the
shorter message is padded to the size of the longer one.

Cost: of the larger of all P and all Q, one message; a QR that waits for none.
"""

from typing import Any

import jax
import jax.numpy as jnp

from relaxjax._core._cond import cond
from relaxjax.gradients.low_rank._bases import bases
from relaxjax.gradients.low_rank._lost_directions import with_lost_directions
from relaxjax.gradients.low_rank._low_rank import Mean, product
from relaxjax.gradients.mean._packing import pack, unpack


def alternate(
    x: list[jax.Array],
    p: list[jax.Array],
    q: list[jax.Array],
    plain: list[jax.Array],
    mean: Mean,
    count: jax.Array | int,
    key: jax.Array,
) -> tuple[list[jax.Array], ...]:
    """The mean of the workers' matrices in low rank, by one message.

    Args:
      x: this worker's matrices, each float32[batch, n, m].
      p: P of the last even step, float32[batch, n, r], equal on all workers.
      q: Q of the last odd step, float32[batch, m, r], likewise.
      plain: arrays of any shape, which travel beside.
      mean: the mean of arrays over the workers, in one message, and what was lost.
      count: the number of the step, which decides on the turn.
      key: draws lost directions anew.

    Returns:
      The approximations; what this worker lost, not finite where nothing counts; the
      next p and q; the means of `plain`, and what was lost of them.
    """
    if not x:
        means, losts = mean(plain)
        return [], [], [], [], means, losts
    even = jnp.asarray(count) % 2 == 0

    def left() -> Any:
        basis = bases(q)
        return list(map(product, x, basis)), basis

    def right() -> Any:
        basis = bases(p)
        return basis, [product(m.mT, b) for m, b in zip(x, basis, strict=True)]

    def sent(flat: jax.Array) -> list[tuple[jax.Array, jax.Array]]:
        """Both factors, this one in the place of the worker's own."""
        new = zip(_parts(flat, a), _parts(flat, b), a, b, strict=True)
        return [
            (jnp.where(even, of_a, a), jnp.where(even, b, of_b))
            for of_a, of_b, a, b in new
        ]

    # No large array comes out of the condition: XLA would copy it.
    a, b = cond(even, left, right)  # P_i and Q^, or P^ and Q_i
    size = max(sum(f.size for f in factors) for factors in (a, b))
    own = jnp.where(even, _flat(a, size), _flat(b, size))
    (total, *means), (lost, *losts) = mean([own, *plain])
    common, mine = sent(total), sent(own - lost)
    out = [product(a, b.mT) for a, b in common]
    sound = [_is_finite(a) & _is_finite(b) for a, b in common]
    missed = [
        jnp.where(ok, m - product(a, b.mT), jnp.nan)
        for ok, m, (a, b) in zip(sound, x, mine, strict=True)
    ]
    p = _next(p, [a for a, _ in common], [even & ok for ok in sound], key)
    q = _next(q, [b for _, b in common], [~even & ok for ok in sound], key)
    return out, missed, p, q, means, losts


def _next(
    before: list[jax.Array], sent: list[jax.Array], new: list[jax.Array], key: jax.Array
) -> list[jax.Array]:
    """P, or Q, for the next step: what was sent, where it is new and finite."""
    found = zip(new, with_lost_directions(sent, key), before, strict=True)
    return [jnp.where(is_new, f, old) for is_new, f, old in found]


def _is_finite(x: jax.Array) -> jax.Array:
    return jnp.isfinite(x).all((1, 2), keepdims=True)


def _flat(arrays: list[jax.Array], size: int) -> jax.Array:
    """All columns in a row, and zeros up to this size."""
    flat = pack([a.mT for a in arrays])
    return jnp.pad(flat, (0, size - flat.size))


def _parts(flat: jax.Array, like: list[jax.Array]) -> list[jax.Array]:
    turned = [a.mT for a in like]
    return [a.mT for a in unpack(flat[: sum(a.size for a in like)], turned)]

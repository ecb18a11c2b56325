"""One way of a collective, as it is or in codes; nothing here has its own gradient.

With C the code, D its inverse and n workers:

    gathered    y_i = (D(C(x_0)), .., D(C(x_{n-1})))     equal on all workers
    exchanged   y_i = (D(C(x_0[i])), .., D(C(x_{n-1}[i])))
    sent        y_i = D(C(x_j)) for j -> i, and 0 without a sender
    scattered   y_i = x_i[i] + sum over j != i of D(C(x_j[i]))
    summed      y = (D(C(s_0)), .., D(C(s_{n-1}))),  s_i = scattered of rows, cut in n

What travels is one array for each leg, and two for `summed`. Sums are taken in float32,
in the order of the workers, and a worker's own part of a sum is not encoded. Everywhere
else a worker decodes what it encoded itself, as others do: so no result depends on who
holds what, and results that are equal on all workers are so to the bit.

A code of None is the collective of jax.lax.

Cost: with P the bytes of a row and r rows in a part, (n - 1) r P for `gathered`,
`exchanged` and `scattered`, r P for `sent`, and for `summed`, which fills the last part
with rows of zeros, 2 (n - 1) ceil(rows / n) P.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax

from relaxjax.activations._rows import Code, as_dtype, width_of
from relaxjax.collectives import distribute, from_wire, gather, landed, to_wire
from relaxjax.collectives import send as permuted

Pairs = Sequence[tuple[int, int]]


def gathered(x: jax.Array, name: str, code: Code | None) -> jax.Array:
    """[n, ..] of x [..]."""
    if code is None:
        return from_wire(lax.all_gather(to_wire(x), name), x.dtype)
    bits = lax.all_gather(code.encode(x[None], name)[0], name)
    each = code.decode(bits, width_of(x[None]))
    return as_dtype(each.reshape(len(bits), *x.shape), x.dtype)


def exchanged(x: jax.Array, name: str, code: Code | None) -> jax.Array:
    """[n, ..] of x [n, ..]: row j goes to worker j."""
    if code is None:
        return distribute(x, name)
    each = code.decode(distribute(code.encode(x, name), name), width_of(x))
    return as_dtype(each.reshape(x.shape), x.dtype)


def sent(x: jax.Array, name: str, pairs: Pairs, code: Code | None) -> jax.Array:
    """x [..] of this worker's sender, or zeros for a worker without a sender."""
    if code is None:
        y = landed(permuted(x, name, pairs), name)
    else:
        bits = permuted(code.encode(x[None], name), name, pairs)
        y = as_dtype(code.decode(bits, width_of(x[None])).reshape(x.shape), x.dtype)
    targets = jnp.asarray([target for _, target in pairs], jnp.int32)
    return jnp.where(jnp.any(targets == lax.axis_index(name)), y, jnp.zeros_like(y))


def scattered(x: jax.Array, name: str, code: Code | None) -> jax.Array:
    """[..] of x [n, ..]: the sum of all workers' rows for this one."""
    if code is None:
        return lax.psum_scatter(x, name)
    return _partial_sum(x, name, code).astype(x.dtype)


def summed(x: jax.Array, name: str, code: Code | None) -> jax.Array:
    """The sum over the workers, and known to be equal where that is tracked."""
    if code is None:
        return lax.psum(x, name)
    width = width_of(x[None])
    rows = x.reshape(-1, width)
    n, count = lax.axis_size(name), len(rows)
    parts = jnp.pad(rows, ((0, -count % n), (0, 0))).reshape(n, -1, width)
    part, later = _partial_sum(parts, name, code), parts.shape[1]
    bits = gather(code.encode(part[None], name, later)[0], name)
    each = code.decode(bits, width, later).reshape(-1, width)
    return each[:count].reshape(x.shape).astype(x.dtype)


def _partial_sum(x: jax.Array, name: str, code: Code) -> jax.Array:
    """float32[..] of x [n, ..]."""
    bits = distribute(code.encode(x, name), name)
    each, i = code.decode(bits, width_of(x)).reshape(x.shape), lax.axis_index(name)
    own = lax.dynamic_index_in_dim(x, i, keepdims=False).astype(jnp.float32)
    return lax.dynamic_update_index_in_dim(each, own, i, 0).sum(axis=0)

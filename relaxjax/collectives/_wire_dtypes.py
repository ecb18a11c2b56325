"""How values travel: narrow floats as integers of their own width, and in what order.

XLA on CPU sends bfloat16 and float16 as float32, and may widen 8-bit floats; integers
of the same width travel as they are, on every backend.
"""

from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from relaxjax._core._axis import like_varying, varying
from relaxjax._core._tree import is_narrow


def bits_of(x: jax.Array) -> jax.Array:
    """The bits of `x`, as unsigned integers of the same width."""
    return lax.bitcast_convert_type(x, f"uint{8 * x.dtype.itemsize}")


def to_wire(x: jax.Array) -> jax.Array:
    """The bits of `x` in a dtype that no backend widens."""
    return bits_of(x) if is_narrow(x.dtype) else x


def from_wire(x: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """Inverse of `to_wire`."""
    return x if x.dtype == dtype else lax.bitcast_convert_type(x, dtype)


def add_rounding_once(x: jax.Array, y: jax.Array) -> jax.Array:
    """`x + y` in float32 or wider, rounded once to the dtype of `x`."""
    if is_narrow(x.dtype):
        return (x.astype(jnp.float32) + y.astype(jnp.float32)).astype(x.dtype)
    return x + y


def sum_rounding_once(blocks: jax.Array) -> jax.Array:
    """The sum of `blocks` over the first axis, in float32 or wider, rounded once.

    The order is fixed, from first to last: equal blocks give equal bits everywhere.
    """
    return wide_sum(blocks).astype(blocks.dtype)


def wide_sum(blocks: jax.Array) -> jax.Array:
    """The sum of `blocks` over the first axis, in float32 or wider."""
    narrow = is_narrow(blocks.dtype)
    first, *others = blocks.astype(jnp.float32) if narrow else blocks
    return reduce(jnp.add, others, first)


def all_after(xs: list[jax.Array], earlier: jax.Array | None) -> list[jax.Array]:
    """Each of `xs`, available only once `earlier` is: orders their transfers.

    `optimization_barrier` does this on GPU and on newer CPU backends; jaxlib 0.10
    drops it on CPU, so the bits of each are also combined with a zero computed from
    `earlier`. The zero is made of integers, so a NaN does not leak.
    """
    if earlier is None:
        return xs
    *xs, first = lax.optimization_barrier((*xs, lax.slice(earlier.ravel(), (0,), (1,))))
    if not jnp.issubdtype(first.dtype, jnp.floating):
        return xs
    pattern = bits_of(first[0])
    last = 8 * first.dtype.itemsize - 1  # the sign's bit, which is cleared
    without_sign = pattern & jnp.asarray(2**last - 1, pattern.dtype)
    zero = lax.shift_right_logical(without_sign, jnp.asarray(last, pattern.dtype))
    return [_xor(x, zero) for x in xs]


def after_on_cpu(xs: list[jax.Array], earlier: jax.Array | None) -> list[jax.Array]:
    """`all_after` on CPU; elsewhere the compiler says what leaves when, and in what."""
    if earlier is None:
        return xs
    *xs, earlier = (reduce(like_varying, [*xs, earlier], x) for x in (*xs, earlier))
    return lax.platform_dependent(xs, earlier, cpu=all_after, default=lambda xs, _: xs)


def once_arrived(
    xs: list[jax.Array], earlier: jax.Array
) -> tuple[list[jax.Array], jax.Array]:
    """Each of `xs`, available only once `earlier` is; and `earlier`, for its users.

    Everywhere but on CPU both pass through one barrier, so that nothing is computed
    from `earlier` in between, and its other users wait for nothing else. A barrier
    forgets which of them are known to be equal on all workers: where they differ in
    that, bits are combined on every backend.
    """
    if any(varying(x) != varying(earlier) for x in xs):
        return all_after(xs, earlier), earlier

    def by_bits(xs: list[jax.Array], earlier: jax.Array) -> Any:
        return all_after(xs, earlier), earlier

    def by_barrier(xs: list[jax.Array], earlier: jax.Array) -> Any:
        return lax.optimization_barrier((xs, earlier))

    return lax.platform_dependent(xs, earlier, cpu=by_bits, default=by_barrier)


def _xor(x: jax.Array, zero: jax.Array) -> jax.Array:
    """`x`, its bits combined with a zero that the compiler does not know to be one."""
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return x
    pattern = bits_of(x)
    zeros = lax.broadcast(lax.convert_element_type(zero, pattern.dtype), x.shape)
    return from_wire(lax.bitwise_xor(pattern, zeros), x.dtype)

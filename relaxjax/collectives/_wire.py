"""How values travel: narrow floats as integers of their own width.

XLA on CPU sends bfloat16 and float16 as float32, and may widen 8-bit floats; integers
of the same width travel as they are, on every backend.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from relaxjax._core._axis import varying
from relaxjax._core._dtypes import is_narrow


def to_wire(x: jax.Array) -> jax.Array:
    """The bits of `x` in a dtype that no backend widens."""
    if is_narrow(x.dtype):
        return lax.bitcast_convert_type(x, unsigned(x.dtype.itemsize))
    return x


def from_wire(x: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """Inverse of `to_wire`."""
    return x if x.dtype == dtype else lax.bitcast_convert_type(x, dtype)


def add_rounding_once(x: jax.Array, y: jax.Array) -> jax.Array:
    """`x + y` in float32 or wider, rounded once to the dtype of `x`."""
    if is_narrow(x.dtype):
        return (x.astype(jnp.float32) + y.astype(jnp.float32)).astype(x.dtype)
    return x + y


def sum_rounding_once(blocks: jax.Array) -> jax.Array:
    """The sum of `blocks` over its first axis, from first to last, rounded once.

    Narrow floats are added in float32. The order is fixed, so that whoever adds the
    same blocks gets the same bits.
    """
    narrow = is_narrow(blocks.dtype)
    first, *others = blocks.astype(jnp.float32) if narrow else blocks
    return functools.reduce(jnp.add, others, first).astype(blocks.dtype)


def after(x: jax.Array, earlier: jax.Array | None) -> jax.Array:
    """`x`, available only once `earlier` is: orders the transfers of the two."""
    return all_after([x], earlier)[0]


def all_after(xs: list[jax.Array], earlier: jax.Array | None) -> list[jax.Array]:
    """Each of `xs`, available only once `earlier` is.

    `optimization_barrier` does this on GPU and on newer CPU backends; jaxlib 0.10
    drops it on CPU, so the bits of each are also combined with a zero computed from
    `earlier`. The zero is made of integers, so a NaN does not leak.
    """
    if earlier is None:
        return xs
    *xs, first = lax.optimization_barrier((*xs, lax.slice(earlier.ravel(), (0,), (1,))))
    if not jnp.issubdtype(first.dtype, jnp.floating):
        return xs
    bits = 8 * first.dtype.itemsize
    pattern = lax.bitcast_convert_type(first[0], unsigned(first.dtype.itemsize))
    without_sign = pattern & jnp.asarray(2 ** (bits - 1) - 1, pattern.dtype)
    zero = lax.shift_right_logical(without_sign, jnp.asarray(bits - 1, pattern.dtype))
    return [_with_zero(x, zero) for x in xs]


def once_arrived(
    xs: list[jax.Array], earlier: jax.Array
) -> tuple[list[jax.Array], jax.Array]:
    """Each of `xs`, available only once `earlier` is; and `earlier`, for its users.

    Everywhere but on CPU both pass through one barrier, so that nothing is computed of
    `earlier` in between, and what waits for it still waits for nothing else. A barrier
    would forget which of them are known to be equal on all workers: where that differs,
    the bits do it everywhere.
    """
    if any(varying(x) != varying(earlier) for x in xs):
        return all_after(xs, earlier), earlier

    def by_bits(xs: list[jax.Array], earlier: jax.Array) -> Any:
        return all_after(xs, earlier), earlier

    def by_barrier(xs: list[jax.Array], earlier: jax.Array) -> Any:
        return lax.optimization_barrier((xs, earlier))

    return lax.platform_dependent(xs, earlier, cpu=by_bits, default=by_barrier)


def _with_zero(x: jax.Array, zero: jax.Array) -> jax.Array:
    """`x`, its bits combined with a zero that the compiler does not know to be one."""
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return x
    whole = lax.bitcast_convert_type(x, unsigned(x.dtype.itemsize))
    zeros = lax.broadcast(lax.convert_element_type(zero, whole.dtype), x.shape)
    return lax.bitcast_convert_type(lax.bitwise_xor(whole, zeros), x.dtype)


def unsigned(itemsize: int) -> jnp.dtype:
    """Unsigned integers of so many bytes."""
    return jnp.dtype(f"uint{8 * itemsize}")

"""The largest and the least element, in which a NaN shows on every back end.

XLA's CPU back end drops a NaN from a float32 maximum or minimum of 4096 elements and
more, and from `lax.pmax` over a mesh at any size (jax 0.10.2 to 0.12.0.1). Read as
integers, the bits b of floats are in their order: below zero once all bits but the sign
are turned. With the NaN that is above infinity for every NaN,

    key(x) = b xor ((b >> 31) and 0x7fffffff),  max x = key^-1(max key(x))

is exact, and a NaN wins. `tests/test_bare_maximum.py` forbids the maximum of floats.

Cost: one pass over x. LLVM makes no vectors of an integer maximum along a row; on CPUs
vectors of 16 are therefore compared with each other first, in rows of 128. A whole
array takes half of the time of a maximum of floats so.
"""

import math

import jax
import jax.numpy as jnp
from jax import lax

from relaxjax._core._axis import compiler_axes

_LANES = 16
_SHORT, _LONG = 128, 512  # elements of a row: of one that is cut, and from where on

Axis = int | tuple[int, ...] | None


def largest(x: jax.Array, axis: Axis = None, *, keepdims: bool = False) -> jax.Array:
    """The largest |x| over `axis`: NaN if there is one, and 0 where x is empty."""
    x = jnp.abs(x)
    if x.size == 0 or not jnp.issubdtype(x.dtype, jnp.floating):
        return jnp.max(x, axis, keepdims=keepdims, initial=0)
    top = _largest(_bits(x), axis, keepdims)  # no sign is set: the bits are the keys
    return lax.bitcast_convert_type(top, x.dtype)


def extremes(
    x: jax.Array, axis: Axis = None, *, keepdims: bool = False
) -> tuple[jax.Array, jax.Array]:
    """The least and the largest x over `axis`: NaN both if there is one.

    x is not empty. A NaN whose sign is set has the least key.
    """
    if not jnp.issubdtype(x.dtype, jnp.floating):
        low = jnp.min(x, axis, keepdims=keepdims)
        return low, jnp.max(x, axis, keepdims=keepdims)
    keys = _turned(_bits(x))
    ends = ~_largest(~keys, axis, keepdims), _largest(keys, axis, keepdims)
    low, high = (lax.bitcast_convert_type(_turned(key), x.dtype) for key in ends)
    hidden = jnp.isnan(low) | jnp.isnan(high)
    return jnp.where(hidden, jnp.nan, low), jnp.where(hidden, jnp.nan, high)


def largest_of(x: jax.Array, axes: str | tuple[str, ...]) -> jax.Array:
    """The largest |x| over named axes of the mesh, elementwise: NaN if there is one."""
    x = jnp.abs(x)
    return lax.bitcast_convert_type(lax.pmax(_bits(x), axes), x.dtype)


def whole_max(x: jax.Array, axes: tuple[str, ...]) -> jax.Array:
    """A leaf's largest magnitude, of those of its parts along these axes."""
    return largest_of(x, axes) if axes else x


def _bits(x: jax.Array) -> jax.Array:
    return lax.bitcast_convert_type(x, f"int{8 * x.dtype.itemsize}")


def _turned(b: jax.Array) -> jax.Array:
    """All bits but the sign are turned where it is set; its own inverse."""
    return b ^ ((b >> (8 * b.dtype.itemsize - 1)) & jnp.iinfo(b.dtype).max)


def _largest(keys: jax.Array, axis: Axis, keepdims: bool) -> jax.Array:
    """The largest integer over `axis`; along rows of a device's own, on CPUs by lanes.

    What the compiler shards stays as it is: rows cut into lanes would be gathered.
    """
    rows = axis in (-1, keys.ndim - 1) or (axis is None and keys.ndim == 1)
    if not rows or compiler_axes():
        return jnp.max(keys, axis, keepdims=keepdims)
    top = lax.platform_dependent(keys, cpu=_by_lanes, default=_along_rows)
    return top[..., None] if keepdims else top


def _along_rows(keys: jax.Array) -> jax.Array:
    return jnp.max(keys, axis=-1)


def _by_lanes(keys: jax.Array) -> jax.Array:
    """The same, elementwise over short vectors for as long as a row holds many.

    Long rows are cut into short ones, and a barrier keeps XLA from fusing both passes
    into one along the long row. Passes alternate between a maximum and a minimum of
    complements: XLA would make one maximum along a row of two.
    """
    width = keys.shape[-1]
    if width < 2 * _LANES:
        return _along_rows(keys)
    if width >= _LONG:
        whole = width // _SHORT * _SHORT
        rows = keys[..., :whole].reshape(*keys.shape[:-1], -1, _SHORT)
        top = lax.optimization_barrier(_by_lanes(rows))
        return _by_lanes(jnp.concatenate([top, keys[..., whole:]], axis=-1))
    height, lanes = _grid(width)
    whole = width // (height * lanes) * (height * lanes)
    grid = keys[..., :whole].reshape(*keys.shape[:-1], -1, height, lanes)
    top = jnp.min(~grid, axis=-2).reshape(*keys.shape[:-1], -1)
    if whole < width:
        top = jnp.concatenate([top, ~keys[..., whole:]], axis=-1)
    return _by_lanes(~top)


def _grid(width: int) -> tuple[int, int]:
    """Height and lanes of a short row, without a rest where four lanes or more fit."""
    lanes = math.gcd(width, _LANES)
    lanes = lanes if lanes >= 4 else _LANES
    return width // lanes, lanes

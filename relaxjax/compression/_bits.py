"""Codes of a few bits, packed into bytes.

Codes of b bits are written one after the other, the lowest bit first, so that k codes
take ceil(k b / 8) bytes, whatever b is.
"""

import math

import jax
import jax.numpy as jnp

from relaxjax._core._checks import is_whole, require_known


def check_bits(bits: int, caller: str) -> None:
    """Refuses anything but 8, 4 and 2."""
    require_known(caller, "bits", bits)
    if not is_whole(bits) or bits not in (8, 4, 2):
        raise ValueError(
            f"{caller}: bits={bits!r} must be 8, 4 or 2; for another number of levels "
            "use qsgd"
        )


def packed_bytes(count: int, width: int) -> int:
    """Number of bytes of `count` codes."""
    return -(-count * width // 8)


def width_below(count: int) -> int:
    """Number of bits of the numbers below `count`, at least 1."""
    return max(1, (count - 1).bit_length())


def pack(codes: jax.Array, width: int) -> jax.Array:
    """uint8[..., ceil(k width / 8)] of unsigned codes [..., k] below 2^width."""
    if 8 % width:
        return _resized(codes, width, 8)[..., : packed_bytes(codes.shape[-1], width)]
    # One reduction, which XLA vectorizes.
    codes = _groups(codes, 8 // width).astype(jnp.uint8)
    return jnp.sum(codes << _shifts(width, codes.ndim), axis=-1, dtype=jnp.uint8)


def unpack(packed: jax.Array, width: int, count: int) -> jax.Array:
    """Inverse of `pack`: [..., count], uint8 for up to 8 bits, else uint32."""
    if 8 % width:
        return _resized(packed, 8, width)[..., :count]
    # One expression, which XLA vectorizes.
    shifted = packed[..., None] >> _shifts(width, packed.ndim + 1)
    codes = shifted & jnp.uint8(2**width - 1)
    k = packed.shape[-1] * 8 // width
    return codes.reshape(*packed.shape[:-1], k)[..., :count]


def _shifts(width: int, ndim: int) -> jax.Array:
    """Places of the codes in a byte, uint8[1, .., 8 / width] of `ndim` axes."""
    return jnp.arange(0, 8, width, dtype=jnp.uint8).reshape(*[1] * (ndim - 1), -1)


def _groups(x: jax.Array, size: int) -> jax.Array:
    """[..., k, size] of [..., n], filled with zeros."""
    if missing := -x.shape[-1] % size:
        x = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, missing)])
    return x.reshape(*x.shape[:-1], x.shape[-1] // size, size)


def _resized(x: jax.Array, width: int, new: int) -> jax.Array:
    """The bits of numbers of `width` bits, as numbers of `new` bits."""
    whole = math.lcm(width, new)
    numbers = _groups(x, whole // width).astype(_unsigned(max(width, new)))
    parts = [_bits(numbers, width, start, new) for start in range(0, whole, new)]
    return jnp.stack(parts, axis=-1).reshape(*x.shape[:-1], -1)


def _bits(numbers: jax.Array, width: int, start: int, length: int) -> jax.Array:
    """Bits start .. start + length - 1 of numbers of `width` bits in a row."""
    bits = jnp.zeros(numbers.shape[:-1], numbers.dtype)
    for place in range(numbers.shape[-1]):
        number, left = numbers[..., place], place * width - start
        if -width < left < length:
            bits = bits | (number << left if left >= 0 else number >> -left)
    return (bits & jnp.asarray(2**length - 1, bits.dtype)).astype(_unsigned(length))


def _unsigned(width: int) -> jnp.dtype:
    return jnp.dtype(jnp.uint8 if width <= 8 else jnp.uint32)

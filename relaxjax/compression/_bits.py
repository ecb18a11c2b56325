"""Codes of a few bits, packed into bytes.

Codes of b bits are written one after the other, the lowest bit first, so that k codes
take ceil(k b / 8) bytes, whatever b is.
"""

import math

import jax
import jax.numpy as jnp


def packed_bytes(count: int, width: int) -> int:
    """Bytes of so many codes."""
    return -(-count * width // 8)


def width_below(count: int) -> int:
    """Bits of a number below `count`, at least one."""
    return max(1, (count - 1).bit_length())


def pack(codes: jax.Array, width: int) -> jax.Array:
    """uint8[..., ceil(k width / 8)] of unsigned codes [..., k] below 2^width."""
    group = _per_group(width)  # codes that fill whole bytes
    k = codes.shape[-1]
    codes = _groups(codes, group)
    if 8 % width == 0:  # one reduction, which XLA vectorises
        shifts = width * jnp.arange(group, dtype=jnp.uint8)
        return jnp.sum(codes.astype(jnp.uint8) << shifts, axis=-1, dtype=jnp.uint8)
    wide = codes.astype(jnp.uint8 if width <= 8 else jnp.uint32)
    out = [_byte(wide, width, 8 * place) for place in range(group * width // 8)]
    merged = jnp.stack(out, axis=-1).reshape(*codes.shape[:-2], -1)
    return merged[..., : packed_bytes(k, width)]


def unpack(packed: jax.Array, width: int, count: int) -> jax.Array:
    """Inverse of `pack`: [..., count], uint8 for up to 8 bits, else uint32."""
    group = _per_group(width)
    size = group * width // 8  # bytes of a group
    if 8 % width == 0:  # one expression, which XLA vectorises
        shifts = width * jnp.arange(group, dtype=jnp.uint8)
        codes = (packed[..., None] >> shifts) & jnp.uint8(2**width - 1)
        return codes.reshape(*packed.shape[:-1], codes.shape[-2] * group)[..., :count]
    groups = _groups(packed, size)
    wide = groups.astype(jnp.uint8 if width <= 8 else jnp.uint32)
    codes = [_code(wide, width, place) for place in range(group)]
    merged = jnp.stack(codes, axis=-1).reshape(*packed.shape[:-1], -1)
    return merged[..., :count]


def _groups(x: jax.Array, size: int) -> jax.Array:
    """[..., k, size] of [..., n], filled with zeros."""
    missing = -x.shape[-1] % size
    if missing:
        x = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, missing)])
    return x.reshape(*x.shape[:-1], x.shape[-1] // size, size)


def _per_group(width: int) -> int:
    return 8 // math.gcd(width, 8)


def _byte(codes: jax.Array, width: int, start: int) -> jax.Array:
    """Bits start .. start + 7 of a group."""
    byte = jnp.zeros(codes.shape[:-1], codes.dtype)
    for place in range(codes.shape[-1]):
        shift = place * width - start  # where this code's lowest bit lies in the byte
        if -width < shift < 8:
            byte = byte | _shifted(codes[..., place], shift)
    return (byte & 255).astype(jnp.uint8)


def _code(group: jax.Array, width: int, place: int) -> jax.Array:
    """Code number `place` of a group of bytes."""
    code = jnp.zeros(group.shape[:-1], group.dtype)
    for index in range(group.shape[-1]):
        shift = 8 * index - place * width
        if -8 < shift < width:
            code = code | _shifted(group[..., index], shift)
    return code & jnp.asarray(2**width - 1, code.dtype)


def _shifted(x: jax.Array, left: int) -> jax.Array:
    return x << left if left >= 0 else x >> -left

"""Blocks of a flat array, and numbers that no input makes meaningless."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from relaxjax._core._checks import is_whole, require_known


class BlockPayload(NamedTuple):
    """Attributes: codes: uint8 or uint16[], packed; scale: float32 or uint8[blocks]."""

    codes: jax.Array
    scale: jax.Array


def check_block_size(block_size: int | None, caller: str, multiple: int = 1) -> None:
    """Refuses anything but None (one block) and positive multiples of `multiple`."""
    if block_size is None:
        return
    require_known(caller, "block_size", block_size)
    if not is_whole(block_size) or block_size < 1 or block_size % multiple:
        several = f"a positive multiple of {multiple}"
        rule = "at least 1 and whole" if multiple == 1 else several
        raise ValueError(
            f"{caller}: block_size={block_size!r} must be {rule}, or None for one block"
        )


def check_power_of_two(block_size: int, caller: str) -> None:
    """Refuses other sizes of blocks, which a Hadamard matrix cannot turn."""
    if not is_whole(block_size) or block_size < 1 or block_size & (block_size - 1):
        raise ValueError(f"{caller}: block_size={block_size!r} must be a power of two")


def block_width(size: int, block_size: int | None) -> int:
    """Number of elements in a block of an array of `size`; at most all, at least 1."""
    return min(block_size or size, size) or 1


def blocks_of(x: jax.Array, block_size: int | None, *, edge: bool = False) -> jax.Array:
    """[m, b] of x[d], the last block filled with zeros (or x[-1]); b is at most d."""
    if x.size == 0:
        return x.reshape(0, 1)
    width = block_width(x.size, block_size)
    if missing := -x.size % width:
        x = jnp.pad(x, (0, missing), mode="edge" if edge else "constant")
    return x.reshape(-1, width)


def block_counts(size: int, block_size: int | None) -> np.ndarray:
    """Number of elements in each block, without the zeros that fill the last."""
    width = block_width(size, block_size)
    return np.minimum(width, size - width * np.arange(-(-size // width)))


def flat_of(blocks: jax.Array, size: int) -> jax.Array:
    """Inverse of `blocks_of`."""
    return blocks.ravel()[:size]


def rescaled(units: jax.Array, scale: jax.Array, block_size: int | None) -> jax.Array:
    """units[d], each times the scale of its block."""
    return flat_of(blocks_of(units, block_size) * scale[:, None], units.size)

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


class Blocks(NamedTuple):
    """How a flat array is cut: into blocks of `size` elements; None: into one."""

    size: int | None

    def width(self, d: int) -> int:
        """Number of elements in a block of an array of d; at most all, at least 1."""
        return min(self.size or d, d) or 1

    def counts(self, d: int) -> np.ndarray:
        """Number of elements in each block, without the zeros that fill the last."""
        width = self.width(d)
        return np.minimum(width, d - width * np.arange(-(-d // width)))

    def of(self, x: jax.Array, *, edge: bool = False) -> jax.Array:
        """[m, b] of x[d], the last one filled with zeros (or x[-1]); b is at most d."""
        if x.size == 0:
            return x.reshape(0, 1)
        width = self.width(x.size)
        if missing := -x.size % width:
            x = jnp.pad(x, (0, missing), mode="edge" if edge else "constant")
        return x.reshape(-1, width)

    def rescaled(self, units: jax.Array, scale: jax.Array) -> jax.Array:
        """units[d], each times the scale of its block."""
        return flat_of(self.of(units) * scale[:, None], units.size)


def flat_of(blocks: jax.Array, size: int) -> jax.Array:
    """Inverse of `Blocks.of`."""
    return blocks.ravel()[:size]


def checked_blocks(block_size: int | None, caller: str, multiple: int = 1) -> Blocks:
    """Refuses anything but None (one block) and positive multiples of `multiple`."""
    if block_size is None:
        return Blocks(None)
    require_known(caller, "block_size", block_size)
    if not is_whole(block_size) or block_size < 1 or block_size % multiple:
        several = f"a positive multiple of {multiple}"
        rule = "at least 1 and whole" if multiple == 1 else several
        raise ValueError(
            f"{caller}: block_size={block_size!r} must be {rule}, or None for one block"
        )
    return Blocks(block_size)

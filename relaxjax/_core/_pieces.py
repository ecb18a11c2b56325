"""What XLA for CPU is not to see through: pieces of a flat array, and values.

It compiles instructions once that differ in their operands alone. Slices at positions
that it sees are all different, and so is whatever it fuses with them: with 100 leaves a
program took six times as long to compile as with positions that come out of an
`optimization_barrier`. Other backends see them as they are, and so do all where there
are `FEW`: what it takes to hide them is more than they cost.

Cost: a uint32 for each piece; nothing is computed.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import lax

FEW = 8
"""Pieces, at most, that are cut where all see it."""


def starts_of(sizes: Sequence[int]) -> Sequence[Any]:
    """Where pieces of these sizes start, one after the other; for `piece`."""
    *starts, end = itertools.accumulate(sizes, initial=0)
    if len(starts) <= FEW or end > np.iinfo(np.int32).max:
        return starts
    return once_on_cpu([np.uint32(start) for start in starts])  # none is negative


def once_on_cpu(x: Any) -> Any:
    """The same arrays, which XLA on CPU would else compute anew for each reader."""
    return lax.platform_dependent(x, cpu=lax.optimization_barrier, default=_same)


def _same(x: Any) -> Any:
    return x


def piece(x: jax.Array, start: Any, size: int) -> jax.Array:
    """So many elements along the last axis, from one of `starts_of` on."""
    if isinstance(start, int):
        return lax.slice_in_dim(x, start, start + size, axis=-1)
    return lax.dynamic_slice_in_dim(x, start, size, axis=-1)


def cut(flat: jax.Array, shapes: Sequence[tuple[int, ...]]) -> list[jax.Array]:
    """The parts of a flat array, one after the other, in these shapes.

    Example:
      >>> import jax.numpy as jnp
      >>> from relaxjax._core._pieces import cut
      >>> [x.tolist() for x in cut(jnp.arange(5), [(2,), (1, 3)])]
      [[0, 1], [[2, 3, 4]]]
    """
    sizes = [math.prod(shape) for shape in shapes]
    return [
        piece(flat, start, size).reshape(shape)
        for start, size, shape in zip(starts_of(sizes), sizes, shapes, strict=True)
    ]

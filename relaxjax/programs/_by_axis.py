"""What a function sends on each axis, read from its trace."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from relaxjax.programs._jaxpr import WalkContext, walk


def _sent_by_axis(
    fn: Callable[..., Any], args: Any, sizes: Mapping[str, int]
) -> dict[str, int]:
    """Bytes that the busiest device sends on each axis in one call of `fn`.

    A collective over several axes counts on each as if it were over that one alone.

    Args:
      fn: a function that is called where the axes are bound.
      args: the arguments of one device: arrays or `jax.ShapeDtypeStruct`.
      sizes: numbers of workers by the names of the axes.
    """
    closed = jax.make_jaxpr(fn, axis_env=list(sizes.items()))(*args)
    known = [None] * len(closed.jaxpr.invars)

    def on(axis: str) -> int:
        alone = {name: n if name == axis else 1 for name, n in sizes.items()}
        return int(walk(closed, known, WalkContext(alone, {}, {}, {})).sent.max())

    return {name: on(name) for name in sizes}


def sent_both_ways(
    fn: Callable[..., Any], args: Any, sizes: Mapping[str, int]
) -> dict[str, tuple[int, int]]:
    """Bytes in the forward and in the backward pass of `fn`, by axis.

    Args:
      fn: a function that is called where the axes are bound.
      args: the arguments of one device; the backward pass is for all floats in them.
      sizes: numbers of workers by the names of the axes.
    """

    def both(*args: Any) -> Any:
        y, pull = jax.vjp(fn, *args)
        return y, pull(jax.tree.map(jnp.ones_like, y))

    forward, total = (_sent_by_axis(f, args, sizes) for f in (fn, both))
    return {name: (sent, total[name] - sent) for name, sent in forward.items()}

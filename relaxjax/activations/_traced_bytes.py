"""What a function of a split model sends each way, by axis, read from its trace."""

from collections.abc import Callable, Mapping
from typing import Any

from relaxjax.activations._sent_bytes import SentBytes
from relaxjax.programs import sent_both_ways


def traced_bytes(
    fn: Callable[..., Any], *args: Any, axes: Mapping[str, int]
) -> dict[str, SentBytes]:
    """Bytes of one forward and one backward pass on each axis, whatever sends them.

    `sent_bytes` is the closed form of one collective; `relaxjax.compiled_wire_bytes`
    reads the sum of all from a compiled step.

    Args:
      fn: a loss, or any function that is called where the axes are bound. What
        `jax.checkpoint` sends again counts in the backward pass.
      *args: the arguments of one worker: arrays or `jax.ShapeDtypeStruct`. The
        backward pass is for the gradient with respect to all floats in them.
      axes: numbers of workers by the names of the axes.

    Returns:
      A `SentBytes` of the busiest worker by the name of each axis. In a pipeline the
      busiest need not be the same worker in both passes.

    Example:
      >>> import jax.numpy as jnp
      >>> from relaxjax import activations, compression
      >>> def layer(w, x):
      ...     x = activations.copy(x, "model", backward=compression.mx("e5m2"))
      ...     return activations.all_reduce(x @ w, "model", forward=code)
      >>> code, axes = compression.mx("e4m3"), {"model": 4}
      >>> w, x = jnp.ones((64, 64)), jnp.ones((8, 64))
      >>> activations.traced_bytes(layer, w, x, axes=axes)
      {'model': SentBytes(forward=792, backward=792)}
    """
    sent = sent_both_ways(fn, args, axes)
    return {name: SentBytes(*both) for name, both in sent.items()}

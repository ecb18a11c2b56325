"""Programs compiled for devices that are not there: their text, and shapes to pass."""

from collections.abc import Mapping
from typing import Annotated, Any

import jax
import numpy as np
import optax
import typer

from relaxjax.schedule import Device, Link

MEMORY = 3.35e12
"""Bytes that an H100 moves in a second."""
Tflops = Annotated[float, typer.Option(min=1, help="10^12 flops of a device, per s.")]
Gigabytes = Annotated[float, typer.Option(min=0.1, help="GB/s that a device sends.")]
Microseconds = Annotated[
    float, typer.Option(min=0, help="Microseconds that a transfer costs by itself.")
]


def rates(
    tflops: float, gigabytes: float, microseconds: float
) -> tuple[Device, Link, dict[str, Any]]:
    """The rates of a replay, and the conditions that state them."""
    device = Device(flops=tflops * 1e12, bandwidth=MEMORY)
    link = Link(microseconds * 1e-6, gigabytes * 1e9)
    known = {"card": "H100, compiled for, not run", "memory": MEMORY}
    return device, link, known | {"bandwidth": link.bandwidth, "latency": link.latency}


def compiled_text(
    fn: Any, *args: Any, options: Mapping[str, str | bool] | None = None
) -> str:
    """Compiles and returns the optimized module.

    Args:
      fn: what `jax.jit` or `relaxjax.data_parallel` returned, over a `gpu_mesh`.
      *args: its arguments, as `jax.ShapeDtypeStruct`.
      options: XLA's flags, by name.

    Returns:
      The text of the scheduled HLO.
    """
    lowered: jax.stages.Lowered = fn.lower(*args)
    text = lowered.compile(compiler_options=dict(options or {})).as_text()
    assert text is not None
    return text


def shapes(tree: Any, workers: int | None = None) -> Any:
    """The shapes of a tree, with a leading worker axis if there are workers.

    Args:
      tree: arrays or their shapes.
      workers: number of workers.
    """
    axis = () if workers is None else (workers,)
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct((*axis, *np.shape(x)), jax.typeof(x).dtype), tree
    )


def state_shapes(tx: optax.GradientTransformation, params: Any, workers: int) -> Any:
    """What `relaxjax.init` would return, as shapes.

    Args:
      tx: the transformation.
      params: params of one worker, arrays or their shapes.
      workers: number of workers.
    """
    one = jax.eval_shape(
        jax.vmap(tx.init, in_axes=None, axis_name="data", axis_size=workers), params
    )
    return shapes(params, workers), shapes(one)

"""Programs compiled for devices that are not there: their text, and shapes to pass."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import optax


class Unavailable(RuntimeError):
    """This machine cannot compile for such a device; the message says why."""


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
      tree: of arrays or their shapes.
      workers: their number.
    """
    axis = () if workers is None else (workers,)
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct((*axis, *np.shape(x)), jax.typeof(x).dtype), tree
    )


def state_shapes(tx: optax.GradientTransformation, params: Any, workers: int) -> Any:
    """What `relaxjax.init` would give, as shapes.

    Args:
      tx: the transformation.
      params: of one worker, arrays or their shapes.
      workers: their number.
    """
    one = jax.eval_shape(
        jax.vmap(tx.init, in_axes=None, axis_name="data", axis_size=workers), params
    )
    return shapes(params, workers), shapes(one)

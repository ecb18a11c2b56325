"""The params of a checkpoint alone: for evaluation and export, without a mesh."""

import os
from collections.abc import Mapping
from typing import Any, SupportsIndex

import jax
import jax.numpy as jnp
import numpy as np

from relaxjax._core._tree import leaf_names
from relaxjax._core.foreign._folders import local_path
from relaxjax._core.foreign._switches import unswitched
from relaxjax.checkpoint._folder import steps_in
from relaxjax.checkpoint._reader import opened
from relaxjax.checkpoint._saved import Saved
from relaxjax.checkpoint._slices import around, slices_told
from relaxjax.workers import consensus

_CALLER = "restore_params"


def restore_params(
    directory: str | os.PathLike[str],
    *,
    step: SupportsIndex | None = None,
    part: str = "params",
    like: Any = None,
) -> Any:
    """One model from a checkpoint, without the transformation or the mesh.

    It is the workers' mean, as `relaxjax.consensus` takes it; slices are joined. The
    folder is only read: a run may write into it meanwhile.

    Args:
      directory: folder of a run's `Checkpoints`.
      step: step of the checkpoint; None for the newest.
      part: name of the params in the state that was saved, such as "params" in
        `{"params": ..., "opt_state": ...}` or "0" in `(params, opt_state)`.
      like: params as for one device, arrays or `jax.ShapeDtypeStruct`, whose tree comes
        back; None: dicts by the names of keys, fields and positions. A key with a
        slash, such as Haiku's, becomes a dict in a dict.

    Returns:
      The params as NumPy arrays, without the worker axis, in their dtypes.

    Raises:
      ValueError: there is no checkpoint, or no such part; a file is not as it was
        written; `like` has other leaves.

    Example:
      >>> import tempfile, jax.numpy as jnp, relaxjax
      >>> folder, mesh = tempfile.mkdtemp(), relaxjax.emulate(2)
      >>> params = relaxjax.to_workers({"w": jnp.arange(3.0)}, mesh)
      >>> with relaxjax.checkpoint.Checkpoints(folder, mesh) as checkpoints:
      ...     checkpoints.save(10, {"params": params, "batches": 10})
      True
      >>> relaxjax.checkpoint.restore_params(folder)
      {'w': array([0., 1., 2.], dtype=float32)}
    """
    folder = local_path(_CALLER, "directory", directory).absolute()
    at, saved = opened(_CALLER, folder, lambda: steps_in(folder), step)
    arrays = _models(saved, part)
    if not arrays:
        parts = sorted({name.partition("/")[0] for name in saved})
        raise ValueError(
            f"restore_params: the checkpoint of step {at} in {folder} has no arrays in "
            f"part={part!r}; its state has {parts}"
        )
    return _nested(arrays) if like is None else _as(like, arrays)


@unswitched()
def _models(saved: Saved, part: str) -> dict[str, np.ndarray]:
    """The mean of the workers' arrays, by their names in this part of the state."""
    slices, models = slices_told(saved.metadata) or {}, {}
    for name in saved:
        if f"{name}/".startswith(f"{part}/"):
            node, rows = around(name, slices), saved[name]
            if node is not None and slices[node].fits(rows):
                rows = slices[node].joined(rows)
                rows = rows.reshape(*rows.shape[:-1], *slices[node].shape)
            own = (node or name).removeprefix(part).removeprefix("/")
            with jax.enable_x64(True):  # a double stays one, whoever reads it
                models[own] = np.asarray(consensus(rows))
    return models


def _nested(arrays: Mapping[str, np.ndarray]) -> Any:
    if "" in arrays:
        return arrays[""]
    tree: dict[str, Any] = {}
    for name, array in arrays.items():
        *path, last = name.split("/")
        node: Any = tree
        for key in path:
            node = node.setdefault(key, {}) if isinstance(node, dict) else node
        if not isinstance(node, dict) or last in node:
            raise ValueError(
                f"restore_params: by names, {name!r} lies in an array or is one that "
                "holds others, as a key has a '/': give like=, the params' own tree"
            )
        node[last] = array
    return tree


def _as(like: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    def kind(x: Any) -> str:
        if x is None:
            return "absent"
        dtype = x.dtype if hasattr(x, "dtype") else jnp.result_type(x)  # of a number
        return f"{dtype}{list(np.shape(x))}"

    leaves = dict(zip(leaf_names(like), jax.tree.leaves(like), strict=True))
    for name in {**arrays, **leaves}:
        was, wanted = kind(arrays.get(name)), kind(leaves.get(name))
        if was != wanted:
            raise ValueError(
                f"restore_params: {name!r} is {was} in the checkpoint and {wanted} in "
                "`like`: give the params that were trained, as for one device"
            )
    return jax.tree.structure(like).unflatten(arrays[name] for name in leaves)

"""Numbers that a step returns beside its state, and their mean over the workers."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from relaxjax._core._tree import is_key, key_path, wide


def require_numbers(metrics: Any) -> None:
    """Refuses metrics without a mean, such as a text, a key, or one of many weights."""
    for path, x in jax.tree.leaves_with_path(metrics):
        try:
            kind: Any = jax.typeof(x)
        except TypeError:
            kind = type(x).__name__
        if isinstance(kind, str) or is_key(kind):
            raise TypeError(
                f"data_parallel: metric {key_path(path)!r} is of type {kind}, and has "
                "no mean over the workers. Return numbers, and what is to be kept as "
                "a part of the state"
            )
    shape = jnp.shape(metrics["weight"]) if _is_weighted(metrics) else ()
    if shape:
        raise ValueError(
            f"data_parallel: the metric 'weight' has shape {shape} on each worker, and "
            "weights its mean: give one number, such as mask.sum(), and metrics that "
            "are means over the worker's own rows"
        )


def _is_weighted(metrics: Any) -> bool:
    return isinstance(metrics, Mapping) and "weight" in metrics


def mean_over_workers(metrics: Any) -> Any:
    """Means over the leading axis, weighted by `metrics["weight"]` if there is one."""

    def widen(x):
        return x.astype(wide(x.dtype))

    if not _is_weighted(metrics):
        return jax.tree.map(lambda x: jnp.mean(widen(x), axis=0), metrics)
    weight = widen(metrics["weight"])
    total = jnp.sum(weight, axis=0)

    def weighted(x):
        w = weight.reshape(-1, *[1] * (x.ndim - 1))
        return jnp.sum(jnp.where(w == 0, 0, w * widen(x)), axis=0) / total

    def mean(path, x):  # by the name, or by what it is, in a class of indices alone
        name = getattr(path[0], "key", getattr(path[0], "name", None))
        named = name == "weight" if isinstance(name, str) else x is metrics["weight"]
        return total if named else weighted(x)

    return jax.tree.map_with_path(mean, metrics)

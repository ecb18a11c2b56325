"""Trees of training state: their leaves by name, and arrays put where others lie.

A `jax.Array` belongs to the workers, [n, ...]; anything else (a Python number, a NumPy
array) belongs to the training loop, and is the same on all processes.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from relaxjax._core._checks import require_own_name_each
from relaxjax._core._phases import reached
from relaxjax._core._tree import is_key, leaf_names

Rows = Callable[[int, int], np.ndarray]
"""The rows `start` to `stop` of an array over workers."""


def named(tree: Any) -> dict[str, Any]:
    """The leaves by their names; refuses two leaves of one name."""
    names, leaves = leaf_names(tree), jax.tree.leaves(tree)
    require_own_name_each("checkpoint", names)
    return dict(zip(names, leaves, strict=True))


def is_array(x: Any) -> bool:
    """Whether a leaf belongs to the workers, with an axis over them."""
    return isinstance(x, jax.Array)


def data_of(x: Any) -> Any:
    """The array itself, or the data of typed keys."""
    return jax.random.key_data(x) if is_key(x) else x


def put(rows: Rows, like: jax.Array) -> jax.Array:
    """An array of these rows that lies where `like` does; keys where it has keys."""
    shape = jax.eval_shape(data_of, like).shape

    def part(index: Any) -> np.ndarray:
        start, stop, _ = index[0].indices(shape[0])
        return rows(start, stop)[(slice(None), *index[1:])]

    if is_key(like):
        data = jnp.asarray(rows(0, shape[0]))
        keys = jax.random.wrap_key_data(data, impl=jax.random.key_impl(like))
        return jax.make_array_from_callback(
            like.shape, like.sharding, lambda index: keys[index]
        )
    return jax.make_array_from_callback(shape, like.sharding, part)


def filled(like: Any, arrays: Mapping[str, Rows], values: Mapping[str, Any]) -> Any:
    """A tree like another, of these arrays and values, in the phases of its counts."""
    leaves = [
        put(arrays[name], leaf) if is_array(leaf) else values[name]
        for name, leaf in named(like).items()
    ]
    return reached(jax.tree.unflatten(jax.tree.structure(like), leaves))


def workers_in(tree: Any) -> int:
    """Number of workers of a state; refuses arrays without an axis over them."""
    shapes = {name: x.shape for name, x in named(tree).items() if is_array(x)}
    if not shapes:
        raise ValueError("checkpoint: the state has no arrays of workers")
    first, like = next(iter(shapes.items()))
    for name, shape in shapes.items():
        if not shape or shape[:1] != like[:1]:
            raise ValueError(
                f"checkpoint: {name!r} has shape {shape}, and {first!r} {like}: all "
                "arrays need a leading axis over the workers. Params and optimizer "
                "state come from relaxjax.init, other arrays from relaxjax.to_workers; "
                "what belongs to the training loop must be a Python number or a NumPy "
                "array"
            )
    return like[0]

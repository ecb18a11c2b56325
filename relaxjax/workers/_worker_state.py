"""Worker state and one worker's trees are arrays alike: which of the two was given?

Nothing in an array says whether its leading axis is the workers'. What can be seen is
said: copies of one model are not one model, and trees whose leaves have unlike leading
axes are not worker state.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from relaxjax._core._arrays import require_arrays
from relaxjax._core._tree import is_key, leaf_name, leaf_names
from relaxjax.workers._tied import refuse_tied


def require_one_model(caller: str, tree: Any, n: int) -> None:
    """Refuses n equal copies of a tree, as `to_workers` has made them.

    Where all numbers of each leaf are equal too, nobody can know.
    """
    leaves = jax.tree.leaves(tree)
    if n < 2 or not leaves or not all(_may_be_copies(x, n) for x in leaves):
        return
    hosts = [np.asarray(x) for x in leaves]
    copies = all((x == x[:1]).all() for x in hosts)
    if copies and not all((x == x.flat[0]).all() for x in hosts if x.size):
        raise ValueError(
            f"{caller}: each leaf is {n} equal copies along its leading axis, as "
            "relaxjax.to_workers and relaxjax.init make them, such as "
            f"{leaf_names(tree)[0]!r} of shape {hosts[0].shape}. Give the tree of one "
            "device, and not worker state; relaxjax.consensus(tree) is one of it"
        )


def require_params(caller: str, tree: Any, n: int) -> None:
    """Refuses a tree that is not of arrays, is tied, or is n equal copies of one."""
    refuse_tied(caller, tree)
    require_arrays(tree, caller)
    for name, x in zip(leaf_names(tree), jax.tree.leaves(tree), strict=True):
        if isinstance(x, Tracer | jax.ShapeDtypeStruct):
            raise TypeError(
                f"{caller}: leaf {name!r} has a shape and no numbers, as in jax.jit "
                "and jax.eval_shape: call it outside of them. For worker state of the "
                "right shapes, such as to restore a checkpoint into, give zeros: "
                "jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), tree)"
            )
    require_one_model(caller, tree, n)


def _may_be_copies(x: Any, n: int) -> bool:
    if isinstance(x, Tracer | jax.ShapeDtypeStruct) or np.shape(x)[:1] != (n,):
        return False
    here = getattr(x, "is_fully_addressable", True)
    return here and not (isinstance(x, jax.Array) and is_key(x))


def require_worker_state(caller: str, tree: Any, stops: Callable[[Any], bool]) -> None:
    """Refuses leaves without a common leading axis; not where it stops."""
    require_arrays(tree, caller)
    paths = jax.tree.leaves_with_path(tree, is_leaf=stops)
    shapes = {leaf_name(at): jnp.shape(x) for at, x in paths if not stops(x)}
    first = next(iter(shapes), "")
    for name, shape in shapes.items():
        if not shape or shape[0] != shapes[first][0]:
            beside = f" and leaf {first!r} {shapes[first]}" if name != first else ""
            raise ValueError(
                f"{caller}: leaf {name!r} has shape {shape}{beside}: worker state has "
                "a leading axis of the workers on each leaf, as relaxjax.init, "
                "relaxjax.to_workers and the step return it"
            )

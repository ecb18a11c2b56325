"""Models of flax.nnx that hold one variable in two places.

JAX takes such a model apart into arrays, and gives back one variable for each place
(flax 0.12): weights that were tied are trained apart.
"""

import sys
from typing import Any

import jax

from relaxjax._core._tree import leaf_name


def refuse_tied(caller: str, tree: Any) -> None:
    """Refuses a variable of flax.nnx that stands in a tree twice.

    Raises:
      ValueError: there is one; the error names both places.
    """
    nnx = sys.modules.get("flax.nnx")
    if nnx is None:
        return
    seen: dict[int, str] = {}
    kind = nnx.Variable
    parts = jax.tree.leaves_with_path(tree, is_leaf=lambda x: isinstance(x, kind))
    for path, x in parts:
        name = leaf_name(path)
        first = seen.setdefault(id(x), name) if isinstance(x, kind) else name
        if first != name:
            raise ValueError(
                f"{caller}: {first!r} and {name!r} are one variable of flax.nnx, and "
                "JAX would take them apart, so that each is trained by itself. Split "
                "the model, which keeps them one: graph, params = nnx.split(model, "
                "nnx.Param); give params, and call nnx.merge(graph, params) in the step"
            )

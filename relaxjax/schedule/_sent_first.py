"""Which leaves leave first: those whose transfers the backward pass can hide.

Source: Wang et al. 2023 (Espresso), who choose for each tensor whether it is
compressed: what is sent behind computation gains nothing from fewer bytes, and pays for
the code. Here the choice is one number, the share of the elements that travel first.
"""

from collections.abc import Iterable
from typing import Any

import jax

from relaxjax.schedule._buckets import sending_order
from relaxjax.schedule._names import leaf_name


def sent_first(tree: Any, share: float, *, order: Iterable[str] | None = None) -> Any:
    """Marks the leaves that are wholly among the first `share` of all elements.

    Args:
      tree: a pytree of arrays or `jax.ShapeDtypeStruct`.
      share: of all elements, from 0 to 1.
      order: leaf names in sending order; None is the reversed natural order, as
        everywhere.

    Returns:
      A tree of bools like it, as labels of `optax.partition` for one.

    Raises:
      ValueError: `share` is not between 0 and 1, or `order` is not a permutation of the
        leaf names.

    Example:
      >>> import jax.numpy as jnp
      >>> from relaxjax.schedule import sent_first
      >>> params = {"layer1": jnp.zeros((4, 4)), "layer2": jnp.zeros((4, 4))}
      >>> sent_first(params, 0.5)
      {'layer1': False, 'layer2': True}
    """
    if not 0 <= share <= 1:
        raise ValueError(
            f"share={share!r} must be between 0 (none is sent first) and 1 (all are)"
        )
    before = sent_before(tree, order)
    leaves, shape = jax.tree.flatten(tree)
    sizes = [jax.typeof(x).size for x in leaves]
    most = share * sum(sizes)
    return shape.unflatten(
        start + size <= most for start, size in zip(before, sizes, strict=True)
    )


def sent_before(tree: Any, order: Iterable[str] | None = None) -> list[int]:
    """Elements that are sent before each leaf's, in tree order.

    Args:
      tree: as of `sent_first`.
      order: as of `sent_first`.
    """
    leaves = jax.tree.leaves_with_path(tree)
    before, sent = [0] * len(leaves), 0
    for place in sending_order([leaf_name(path) for path, _ in leaves], order):
        before[place] = sent
        sent += jax.typeof(leaves[place][1]).size
    return before

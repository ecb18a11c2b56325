"""In which order leaves are sent, and which of them the backward pass can hide.

Source of `sent_first`: Wang et al. 2023 (Espresso), who choose for each tensor whether
to compress it: what the backward pass hides gains nothing from fewer bytes, and pays
for compression. Here the choice is one number, the share of the elements that travel
first.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import jax
import numpy as np

from relaxjax._core._arrays import own_names, without_value
from relaxjax._core._checks import require_known
from relaxjax._core._tree import natural_key


def sending_order(names: Sequence[str], order: Iterable[str] | None) -> list[int]:
    """Positions of the named leaves in sending order; `order` must name each once.

    That is the order in which gradients appear; None means the reversed natural order
    of the names, as the backward pass ends with the first layers.
    """
    if order is None:
        return sorted(range(len(names)), key=lambda i: natural_key(names[i]))[::-1]
    if twice := [name for i, name in enumerate(names) if name in names[:i]]:
        raise ValueError(
            f"two leaves are called {twice}, as a key has a '/': rename it"
        )
    order = without_value(order, names)
    faults = {
        "misses": [name for name in names if name not in order],
        "repeats": sorted({name for name in order if order.count(name) > 1}),
        "has unknown": [name for name in order if name not in names],
    }
    for fault, wrong in faults.items():
        if wrong:
            raise ValueError(
                f"order {fault} {'leaf' if len(wrong) == 1 else 'leaves'} {wrong}: it "
                f"must list each of the {len(names)} leaves once. Names are key paths "
                'such as "layers/0/kernel"; order=None sends in reversed natural order'
            )
    position = {name: i for i, name in enumerate(names)}
    return [position[name] for name in order]


def order_names(tree: Any) -> list[str]:
    """The names of leaves that an order lists; "params" for a bare array."""
    return [name or "params" for name in own_names(tree)]


def check_bucket_bytes(bucket_bytes: int) -> int:
    """Returns `bucket_bytes`, which must be a positive integer."""
    require_known("buckets", "bucket_bytes", bucket_bytes)
    if not isinstance(bucket_bytes, int | np.integer) or bucket_bytes <= 0:
        raise ValueError(
            f"bucket_bytes={bucket_bytes!r} must be a positive number of bytes, such "
            "as 8 * 2**20; a small one sends each leaf by itself"
        )
    return int(bucket_bytes)


def in_order(tree: Any, order: Iterable[str] | None) -> list[tuple[int, str, Any]]:
    """Position in the tree, name and type of each leaf, in sending order."""
    leaves, names = jax.tree.leaves(tree), order_names(tree)
    return [(i, names[i], jax.typeof(leaves[i])) for i in sending_order(names, order)]


def sent_first(tree: Any, share: float, *, order: Iterable[str] | None = None) -> Any:
    """Marks the leaves that are wholly among the first `share` of all elements.

    Args:
      tree: a pytree of arrays or `jax.ShapeDtypeStruct`.
      share: a fraction of all elements, from 0 to 1.
      order: leaf names in sending order; None is their reversed natural order.

    Returns:
      The same tree of bools, for example as labels for `optax.partition`.

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
            f"share={share!r} must be between 0 (nothing is sent first) and 1 (all is)"
        )
    leaves, structure = jax.tree.flatten(tree)
    sizes = [jax.typeof(x).size for x in leaves]
    starts = zip(sent_before(tree, order), sizes, strict=True)
    most = share * sum(sizes)
    return structure.unflatten(start + size <= most for start, size in starts)


def sent_before(tree: Any, order: Iterable[str] | None = None) -> list[int]:
    """Number of elements that are sent before each leaf's, in tree order."""
    ordered = in_order(tree, order)
    before, sent = [0] * len(ordered), 0
    for i, _, aval in ordered:
        before[i] = sent
        sent += aval.size
    return before


def marks_of(tree: Any, layouts: Sequence[Hashable] | None) -> Sequence[Hashable]:
    """The layout of each leaf, or None of each."""
    count = len(jax.tree.leaves(tree))
    if layouts is not None and len(layouts) != count:
        raise ValueError(
            f"layouts has {len(layouts)} entries, and the tree {count} leaves: give "
            "one for each leaf, in the tree's order"
        )
    return [None] * count if layouts is None else layouts

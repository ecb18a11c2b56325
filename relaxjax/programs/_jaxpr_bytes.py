"""What each collective of a traced program sends.

Per device, with n workers on the axis, or in each of its groups, and operands of d
elements:

    psum, pmax, pmin   2 (n - 1) ceil(d / n) itemsize, per operand (ring all-reduce)
    all_gather         (n - 1) d itemsize
    reduce_scatter     (n - 1) ceil(d / n) itemsize
    all_to_all         (n - 1) d / n itemsize
    pbroadcast         d itemsize (each passes it on)
    ppermute           d itemsize on each sender; a message to oneself is free
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.extend import core

from relaxjax._core._jaxprs import axis_names_of


def _on_all(share: Callable[[int, int], int]) -> Callable[..., np.ndarray]:
    """A collective in which every device sends `share(n, d)` elements per operand."""

    def count(eqn: core.JaxprEqn, sizes: dict[str, int]) -> np.ndarray:
        groups = eqn.params.get("axis_index_groups")
        n = math.prod(sizes[name] for name in axis_names_of(eqn))
        n = len(groups[0]) if groups else n
        operands = [shape_of(var) for var in eqn.invars]
        sent = sum(share(n, x.size) * x.dtype.itemsize for x in operands)
        return np.full(tuple(sizes.values()), sent, np.int64)

    return count


def _permute(eqn: core.JaxprEqn, sizes: dict[str, int]) -> np.ndarray:
    """The bytes of a `ppermute`, on each sender along the axes of the permutation."""
    names, axes = axis_names_of(eqn), list(sizes)
    positions = np.indices(tuple(sizes.values()))
    place = np.zeros(tuple(sizes.values()), np.int64)
    for name in names:
        place = place * sizes[name] + positions[axes.index(name)]
    senders = [source for source, target in eqn.params["perm"] if source != target]
    block = shape_of(eqn.invars[0])
    return np.isin(place, senders) * block.size * block.dtype.itemsize


def shape_of(var: Any) -> jax.ShapeDtypeStruct:
    """Shape and dtype of a variable or literal."""
    return jax.ShapeDtypeStruct(var.aval.shape, var.aval.dtype)


_ring_sum = _on_all(lambda n, d: 2 * (n - 1) * -(-d // n))
COLLECTIVES: dict[str, Callable[..., np.ndarray]] = {
    "psum": _ring_sum,
    "psum_invariant": _ring_sum,
    "pmax": _ring_sum,
    "pmin": _ring_sum,
    "all_gather": _on_all(lambda n, d: (n - 1) * d),
    "all_gather_invariant": _on_all(lambda n, d: (n - 1) * d),
    "reduce_scatter": _on_all(lambda n, d: (n - 1) * -(-d // n)),
    "all_to_all": _on_all(lambda n, d: (n - 1) * d // n),
    "pbroadcast": _on_all(lambda n, d: d if n > 1 else 0),
    "ppermute": _permute,
}

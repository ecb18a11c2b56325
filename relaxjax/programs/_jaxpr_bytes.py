"""What each collective of a traced program sends.

Per device, with n workers on the axis, or in each of its groups, and operands of d
elements:

    psum, pmax, pmin   2 (n - 1) ceil(d / n) itemsize, per operand (ring all-reduce)
    all_gather         (n - 1) d itemsize
    reduce_scatter     (n - 1) ceil(d / n) itemsize
    all_to_all         (n - 1) d / n itemsize
    pbroadcast         d itemsize (each passes it on)
    ppermute           d itemsize on each sender; a message to oneself is free

Rounds are messages that wait for each other, which is what latency is paid for:

    psum, pmax, pmin             2 ceil(log2 n), up and down a tree
    all_gather, reduce_scatter   n - 1, around a ring
    all_to_all, ppermute         1, all at once

Variants of JAX count as what they are made of: those that start and end apart, and
those of unreduced and reduced values.
"""

import math
import re
from collections.abc import Callable, Container
from typing import Any

import jax
import numpy as np
from jax.extend import core

from relaxjax._core._jaxprs import axis_names_of, programs_of


def _on_all(share: Callable[[int, int], int]) -> Callable[..., np.ndarray]:
    """A collective in which every device sends `share(n, d)` elements per operand."""

    def count(eqn: core.JaxprEqn, sizes: dict[str, int]) -> np.ndarray:
        n, operands = _workers(eqn, sizes), [shape_of(var) for var in eqn.invars]
        sent = sum(share(n, x.size) * x.dtype.itemsize for x in operands)
        return np.full(tuple(sizes.values()), sent, np.int64)

    return count


def _permute(eqn: core.JaxprEqn, sizes: dict[str, int]) -> np.ndarray:
    """The bytes of a `ppermute`, on each sender along the axes of the permutation."""
    names, shape = axis_names_of(eqn), tuple(sizes.values())
    if all(sizes[name] == 1 for name in names):
        return np.zeros(shape, np.int64)
    along = dict(zip(sizes, np.indices(shape), strict=True))
    place = np.ravel_multi_index([along[k] for k in names], [sizes[k] for k in names])
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


_VARIANTS = {
    "all_gather_reduced": "all_gather",
    "pbroadcast_dynamic": "pbroadcast",
    "unreduced_pmax": "pmax",
    "unreduced_pmin": "pmin",
    "unreduced_psum": "psum",
    "unreduced_reduce_scatter": "reduce_scatter",
}
_FREE = re.compile(r"axis_index|pvary|preduced|.*_cast(_p)?|_?dones?|.*_done")


def _counted_as(eqn: core.JaxprEqn) -> str:
    name = eqn.primitive.name.removesuffix("_start")
    return _VARIANTS.get(name, name)


def may_send(eqn: core.JaxprEqn) -> bool:
    """Whether it sends by itself, or is unknown and works over a named axis."""
    name = _counted_as(eqn)
    if name in COLLECTIVES or not axis_names_of(eqn):
        return name in COLLECTIVES
    return not _FREE.fullmatch(name) and not any(programs_of(eqn.params))


def collective_of(eqn: core.JaxprEqn, sizes: Container[str]) -> str | None:
    """The key of `COLLECTIVES` that an equation counts as; None: it sends nothing.

    Raises:
      ValueError: it is unknown and works over an axis of `sizes`.
    """
    name = _counted_as(eqn)
    if name in COLLECTIVES:
        return name
    over = [axis for axis in axis_names_of(eqn) if axis in sizes]
    if over and may_send(eqn):
        raise ValueError(
            f"wire_bytes: {eqn.primitive.name} over the axis {over[0]!r} sends what "
            "only the run knows, or is unknown here, and is not counted; read its "
            "bytes from a profile of the run"
        )
    return None


def rounds_of(eqn: core.JaxprEqn, name: str, sizes: dict[str, int]) -> int:
    """Messages that wait for each other, of what counts as the collective `name`."""
    if name == "ppermute":
        return int(any(source != target for source, target in eqn.params["perm"]))
    n = _workers(eqn, sizes)
    if COLLECTIVES[name] is _ring_sum:
        return 2 * (n - 1).bit_length()
    return min(n - 1, 1) if name in ("all_to_all", "pbroadcast") else n - 1


def _workers(eqn: core.JaxprEqn, sizes: dict[str, int]) -> int:
    """Number of workers that a collective is over, or of each of its groups."""
    groups = eqn.params.get("axis_index_groups")
    return len(groups[0]) if groups else math.prod(sizes[k] for k in axis_names_of(eqn))

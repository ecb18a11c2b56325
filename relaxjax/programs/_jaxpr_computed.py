"""The results of an equation whose inputs are known.

Integers and truth values are computed by NumPy, which needs no program for it: what a
counter goes through in a step takes microseconds. All else is left to JAX.

Cost: O(elements).
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax.extend import core

from relaxjax._core._tree import is_key
from relaxjax.programs._jaxpr_bytes import shape_of

_LARGEST = 4096  # elements; branches depend on counters and small tables

_BY_NUMPY: Mapping[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "rem": np.fmod,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "not": np.invert,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "select_n": lambda which, *cases: np.select(
        [which == i for i in range(len(cases))], cases
    ),
    "convert_element_type": lambda x: x,
    "squeeze": lambda x: x,
    "broadcast_in_dim": lambda x: x,
}
"""From the names of primitives; the result takes the dtype and shape of the output."""


def computed(eqn: core.JaxprEqn, known: list[Any]) -> list[Any] | None:
    """The outputs of a primitive all of whose inputs are known, if they are small."""
    if any(value is None for value in known) or eqn.primitive.name == "axis_index":
        return None
    if sum(shape_of(var).size for var in eqn.outvars) > _LARGEST:
        return None
    if (out := _by_numpy(eqn, known)) is not None:
        return [out]
    out = eqn.primitive.bind(*map(_without_mesh, known), **eqn.params)
    return list(out) if eqn.primitive.multiple_results else [out]


def plain(value: Any) -> np.ndarray:
    """A known value on the host, the words of keys."""
    if isinstance(value, jax.Array) and is_key(value):
        return np.asarray(jax.random.key_data(value))
    return np.asarray(value)


def _by_numpy(eqn: core.JaxprEqn, known: list[Any]) -> np.ndarray | None:
    """The output, where NumPy computes it to the bit; None elsewhere."""
    by, to = _BY_NUMPY.get(eqn.primitive.name), shape_of(eqn.outvars[0])
    if by is None or any(isinstance(x, jax.Array) and is_key(x) for x in known):
        return None
    inputs = [np.asarray(x) for x in known]
    if any(x.dtype.kind not in "iub" for x in inputs) or to.dtype.kind not in "iub":
        return None
    if any(x.size not in (1, to.size) for x in inputs):
        return None
    if eqn.primitive.name == "rem" and not np.all(inputs[1]):
        return None
    out = np.asarray(by(*inputs)).astype(to.dtype)  # wraps around, as on a device
    return out.reshape(to.shape) if out.size == to.size else np.full(to.shape, out)


def _without_mesh(value: Any) -> Any:
    """The value outside a mapping: constants remember where they were traced."""
    if isinstance(value, jax.Array) and not is_key(value):
        return np.asarray(value)
    return value

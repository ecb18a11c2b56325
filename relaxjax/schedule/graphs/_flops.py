"""Arithmetic and memory traffic of one jaxpr equation, from shapes.

    dot_general    2 * batch * M * N * K
    convolution    2 * output size * kernel size / output channels
    reductions     one per input element;  sorting: n log2 n per row
    windows        output size * window size;  scatter: one per update
    element-wise   one per output element
    data movement  no arithmetic

Memory traffic is what an equation reads and writes by itself; a compiler that fuses
element-wise equations into their neighbors saves most of theirs, so the seconds of
small equations are upper bounds. Slices and gathers count what they pick, not the
whole array they pick from.

Cost: O(1) per equation.
"""

import math

import jax
import jax.numpy as jnp
from jax.extend.core import JaxprEqn

_FREE_NAMES = (
    "reshape squeeze expand_dims broadcast_in_dim stop_gradient copy copy_p pvary "
    "pcast optimization_barrier name sharding_constraint split"
)
FREE = frozenset(_FREE_NAMES.split())
"""Primitives that cost nothing: pure changes of view."""

SCALAR_FUNCTION = ("reduce", "scatter", "select_and_scatter")
"""How the names of primitives begin whose inner function combines two scalars."""

_MOVING_NAMES = (
    "transpose concatenate pad rev select_n convert_element_type iota gather slice "
    "dynamic_slice dynamic_update_slice scatter bitcast_convert_type random_wrap "
    "random_unwrap random_seed real imag"
)
_MOVING = frozenset(_MOVING_NAMES.split())
_PICKING = frozenset(["gather", "slice", "dynamic_slice"])
_WRITING = ("dynamic_update_slice", "scatter")
_REDUCING = ("reduce", "arg", "cum")
_ELEMENTWISE_NAMES = (
    "add sub mul div rem neg sign floor ceil round abs max min pow integer_pow exp "
    "exp2 log log1p expm1 tanh tan sin cos asin acos atan sinh cosh asinh acosh "
    "atanh atan2 sqrt rsqrt cbrt logistic erf erfc erf_inv square lgamma digamma "
    "is_finite not and or xor eq ne lt le gt ge clamp add_any nextafter shift_left "
    "population_count clz shift_right_logical shift_right_arithmetic "
    "reduce_precision conj random_bits random_fold_in threefry2x32 "
    "select_and_scatter_add"
)
_ELEMENTWISE = frozenset(_ELEMENTWISE_NAMES.split())


def flops(eqn: JaxprEqn) -> float | None:
    """Floating-point operations of an equation with no jaxpr inside; None: no rule."""
    name = eqn.primitive.name
    out = _size(eqn.outvars[0].aval) if eqn.outvars else 0
    if name == "dot_general":
        ((contracting, _), _) = eqn.params["dimension_numbers"]
        lhs = _shape(eqn.invars[0].aval)
        return 2.0 * out * math.prod(lhs[d] for d in contracting)
    if name == "conv_general_dilated":
        kernel = _shape(eqn.invars[1].aval)
        channels = kernel[eqn.params["dimension_numbers"].rhs_spec[0]]
        return 2.0 * out * math.prod(kernel) / max(channels, 1)
    if name in _MOVING or name in FREE:
        return 0.0
    if name.startswith(("reduce_window", "select_and")):
        return float(out * math.prod(eqn.params["window_dimensions"]))
    if name.startswith("scatter"):
        return float(_size(eqn.invars[2].aval))
    if name == "sort":
        n = _shape(eqn.invars[0].aval)[eqn.params["dimension"]]
        return _size(eqn.invars[0].aval) * math.log2(max(n, 2))
    if name in ("top_k", "approx_top_k") or name.startswith(_REDUCING):
        return float(_size(eqn.invars[0].aval))
    if name in _ELEMENTWISE:
        return float(out)
    return None


def memory_traffic(eqn: JaxprEqn) -> float:
    """Bytes that an equation with no jaxpr inside reads and writes."""
    read = [nbytes(v.aval) for v in eqn.invars]
    written = sum(nbytes(v.aval) for v in eqn.outvars)
    if eqn.primitive.name in _PICKING:
        return sum(read[1:]) + 2.0 * written
    if eqn.primitive.name.startswith(_WRITING):  # updates in place
        return 2.0 * sum(read[1:])
    return float(sum(read) + written)


def nbytes(aval: object) -> int:
    """Bytes of anything with a shape and a dtype; 0 without a dtype."""
    dtype = getattr(aval, "dtype", None)
    if dtype is None:
        return 0
    if jnp.issubdtype(dtype, jax.dtypes.extended):  # a key: two 32-bit words
        return 8 * _size(aval)
    return _size(aval) * dtype.itemsize


def _shape(aval: object) -> tuple[int, ...]:
    return tuple(getattr(aval, "shape", ()))


def _size(aval: object) -> int:
    return math.prod(_shape(aval))

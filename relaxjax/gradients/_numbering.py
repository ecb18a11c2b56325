"""What a traced program computes for each result, whatever the shapes: as digests.

Each value has a number made of the operation, its scalar settings and the numbers of
its operands. Broadcasts and reshapes, and reductions of a single element, keep the
number of what they are given. So two elementwise programs give a result the same number
if they do the same with each element, and another if they look at a shape: to leave an
operation out, or to scale by a size.

Cost: one pass over the equations.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.extend import core

from relaxjax._core._jaxprs import Program, programs_of
from relaxjax._core.traced._digests import bytes_of

_SAME = {
    "broadcast_in_dim", "copy", "copy_p", "expand_dims", "pcast", "pvary", "reshape",
    "squeeze", "stop_gradient",
}  # fmt: skip
_OF_ONE = {
    "reduce_and", "reduce_max", "reduce_min", "reduce_or", "reduce_prod", "reduce_sum",
}  # fmt: skip
_LOOPS = {"scan", "while"}
_PLACES = {"axis", "dimension", "index", "length", "name", "sharding", "weak_type"}


def numbers_of(program: Program, ins: Sequence[str]) -> list[str]:
    """The number of each result of a program whose arguments have these numbers."""
    jaxpr = program.jaxpr
    env: dict[Any, str] = dict(zip(jaxpr.invars, ins, strict=True))
    env.update(zip(jaxpr.constvars, map(_constant, program.consts), strict=True))

    def read(var: Any) -> str:
        return _constant(var.val) if isinstance(var, core.Literal) else env[var]

    for eqn in jaxpr.eqns:
        outs = _equation(eqn, [read(v) for v in eqn.invars])
        env.update(zip(eqn.outvars, outs, strict=True))
    return [read(v) for v in jaxpr.outvars]


def _equation(eqn: core.JaxprEqn, ins: list[str]) -> list[str]:
    name, count = eqn.primitive.name, len(eqn.outvars)
    programs = list(programs_of(eqn.params))
    if name == "cond":
        branches = [numbers_of(program, ins[1:]) for program in programs]
        return [_digest(name, ins[0], *outs) for outs in zip(*branches, strict=True)]
    if len(programs) == 1 and name not in _LOOPS:
        (inner,) = programs
        if (len(inner.jaxpr.invars), len(inner.jaxpr.outvars)) == (len(ins), count):
            return numbers_of(inner, ins)
    if _keeps(eqn):
        return [ins[0]]
    inside = [
        numbers_of(x, list(map(str, range(len(x.jaxpr.invars))))) for x in programs
    ]
    settings = sorted(
        (key, str(value)) for key, value in eqn.params.items() if _counts(key, value)
    )
    return [_digest(name, i, settings, inside, *ins) for i in range(count)]


def _keeps(eqn: core.JaxprEqn) -> bool:
    """Whether each element of the result is one of what it is given, unchanged."""
    name = eqn.primitive.name
    if name in _SAME:
        return True
    kind: Any = eqn.invars[0].aval if eqn.invars else None
    if name == "convert_element_type":
        return kind.dtype == eqn.params["new_dtype"]
    return name in _OF_ONE and kind.size == 1


def _counts(key: str, value: Any) -> bool:
    """Whether a setting says what is computed, and not where."""
    return key not in _PLACES and (
        isinstance(value, bool | int | float | str | np.dtype | type)
    )


def _constant(x: Any) -> str:
    """The number of a constant, the same for equal elements of any shape."""
    if isinstance(x, Tracer):
        return _digest("traced", id(x))
    if jnp.issubdtype(jnp.result_type(x), jax.dtypes.prng_key):
        return _digest("key", bytes_of(x))
    array = np.asarray(x)
    first = array.reshape(-1)[:1]
    if array.size and first.tobytes() * array.size == array.tobytes():
        return _digest("constant", array.dtype.name, first.tobytes())
    return _digest("constant", bytes_of(array))


def _digest(*parts: Any) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()

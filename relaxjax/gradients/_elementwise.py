"""Which optimizers do not mind seeing a slice of each leaf.

A server, or a worker with sharded params, has a slice of each leaf. The update of a
slice is the slice of the leaf's update only if no element's update depends on another
element, nor on where in the leaf it is. That holds for SGD, momentum, Adam and their
kin, and not for clipping by a norm, LAMB, Muon or Adafactor, nor for what is done with
one row, nor where the same random numbers would be drawn for each slice.

The program of `update` is walked: what depends on a leaf and has more than one element
must keep its shape in every operation, and enter only those that are known to work on
each element by itself. Numbers of places (`iota`) may not meet it.

Cost: one trace of `init` and `update`.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import optax
from jax.extend import core

from relaxjax._core._arrays import shapes_of
from relaxjax._core._jaxprs import axis_names_of, programs_of, walked
from relaxjax._core.traced._extra_args import with_extra_args
from relaxjax._core.traced._marks import doer_of
from relaxjax.programs import shape_of
from relaxjax.workers import WorkerMesh, tracing

_BY_ELEMENT = {
    "abs", "acos", "acosh", "add", "add_any", "and", "asin", "asinh", "atan", "atan2",
    "atanh", "bessel_i0e", "bessel_i1e", "bitcast_convert_type", "broadcast_in_dim",
    "cbrt", "ceil", "clamp", "clz", "complex", "conj", "convert_element_type", "copy",
    "copy_p", "cos", "cosh", "device_put", "digamma", "div", "eq", "eq_to", "erf",
    "erf_inv", "erfc", "exp", "exp2", "expm1", "floor", "ge", "gt", "igamma",
    "igamma_grad_a", "igammac", "imag", "integer_pow", "is_finite", "le", "le_to",
    "lgamma", "log", "log1p", "log2", "logistic", "lt", "lt_to", "max", "min", "mul",
    "mulhi", "name", "ne", "neg", "nextafter", "not", "one_minus_square",
    "optimization_barrier", "or", "polygamma", "polynomial", "population_count", "pow",
    "real", "reduce_precision", "regularized_incomplete_beta", "rem", "reshape",
    "round", "rsqrt", "select_n", "shift_left", "shift_right_arithmetic",
    "shift_right_logical", "sign", "sin", "sinh", "sqrt", "square", "squeeze", "sub",
    "tan", "tanh", "tie", "xor", "zeta", "pbroadcast", "pcast", "pmax", "pmin",
    "ppermute", "psum", "psum_invariant", "pvary", "reduced_vary_cast", "reshard",
    "sharding_constraint", "mesh_cast",
}  # fmt: skip
"""Operations on each element by itself, where they keep the shape."""
_CALLS = {
    "jit", "pjit", "closed_call", "core_call", "named_call", "custom_jvp_call",
    "custom_vjp_call", "custom_vjp_call_jaxpr", "checkpoint", "remat", "remat2",
    "composite", "cond", "while", "scan", "shard_map",
}  # fmt: skip
"""What runs programs on what it is given; a scatter's says how two elements join."""
_DRAWING = {"random_bits", "threefry2x32", "rng_uniform", "rng_bit_generator"}


def require_elementwise(
    optimizer: optax.GradientTransformation,
    params: Any,
    caller: str,
    workers: WorkerMesh | None = None,
    over: Sequence[str] = (),
) -> None:
    """Refuses optimizers that reduce, multiply matrices, or draw at random.

    With `workers`, params are sharded over the axes `over` alone, and the optimizer may
    hold relaxations across the others, which may mix elements. So may who sums up over
    the axes of the slices, as for the norm of a whole leaf.
    """
    kinds = shapes_of(params)
    if not jax.tree.leaves(kinds):
        return
    program = _program(optimizer, kinds, workers)
    several = [shape_of(v).size > 1 for v in program.invars]  # not the counters
    for name in _mixing(program, several, frozenset(over if workers else ())):
        raise ValueError(
            f"{caller}: the optimizer's update of an element depends on others, or on "
            f"its place (its program has {name!r}), and a worker has only a slice of "
            "each leaf. Use an elementwise optimizer such as optax.sgd, optax.adam or "
            "optax.adamw, or relaxjax.all_reduce, with which params stay whole. To "
            "clip slices by the norm of all, add up their squares over the workers in "
            "the step: jax.lax.psum(squares, axis_name)"
        )


def tracing_for(workers: WorkerMesh | None) -> AbstractContextManager[Any]:
    """`jax.make_jaxpr`, in the axes of the workers if there are any."""
    return nullcontext(jax.make_jaxpr) if workers is None else tracing(workers)


def _program(
    optimizer: optax.GradientTransformation, kinds: Any, workers: WorkerMesh | None
) -> core.Jaxpr:
    """The program of `update`."""
    with tracing_for(workers) as trace:
        state = trace(optimizer.init, return_shape=True)(kinds)[1]
        return with_extra_args(
            lambda x: trace(x.update_of(optimizer))(kinds, state, kinds, x.arrays),
            kinds,
            None,
        ).jaxpr


def _mixing(
    jaxpr: core.Jaxpr, of_leaves: list[bool], over: frozenset[str]
) -> list[str]:
    """Names of operations that mix elements of leaves, or draw at random."""
    look = _Look(over)
    out = look(jaxpr, [_WHOLE if of_leaf else None for of_leaf in of_leaves], "")
    return look.found + [value for value in out if value]


_WHOLE, _PLACES = "", "iota"
_Value = str | None
"""None if it depends on no leaf; `_WHOLE` if each element does on one element;
`_PLACES` if on its place; else the operation that has mixed the elements of a slice."""


class _Look:
    """One pass over a program and the programs in it.

    Attributes:
      over: axes of the slices, a collective over which makes whole what was mixed.
      found: operations whose results have met elements.
    """

    def __init__(self, over: frozenset[str]):
        self.over = over
        self.found: list[str] = []

    def __call__(
        self, jaxpr: core.Jaxpr, ins: Sequence[_Value], scope: str
    ) -> list[_Value]:
        return walked(jaxpr, ins, None, self.equation, scope)

    def equation(self, eqn: Any, ins: list[_Value], scope: str) -> list[_Value]:
        """The values of an equation's results."""
        name, count = eqn.primitive.name, len(eqn.outvars)
        parts = [part.jaxpr for part in programs_of(eqn.params)]
        if parts and name in _CALLS:
            return self.nested(parts, ins, scope, count)
        value = _join(ins)
        if name == _PLACES or (value == _PLACES and _WHOLE not in ins):
            several = [shape_of(var).size > 1 for var in eqn.outvars]
            own = not doer_of(scope)  # a relaxation's places are its own matter
            return [_PLACES if many and own else None for many in several]
        if self.over.intersection(axis_names_of(eqn)) and not doer_of(scope):
            return [value and _WHOLE] * count
        if not doer_of(scope) and _mixes(eqn, ins):
            value = name
            if not self.over:
                self.found.append(name)
        elif value and _shapes(eqn, [x == _WHOLE for x in ins]):
            self.found.append(value)
        return [value] * count

    def nested(
        self, parts: Any, ins: list[_Value], scope: str, count: int
    ) -> list[_Value]:
        """The values of the results of programs inside of an equation."""
        results = []
        for part in parts:
            spare = len(ins) - len(part.invars)  # which come first
            same = [_join(ins)] * len(part.invars) if spare < 0 else ins[spare:]
            outs = self(part, same, scope)
            here = outs if len(outs) == count else [_join(outs)] * count
            results.append([_join([x, *ins[: max(spare, 0)]]) for x in here])
        return [_join(values) for values in zip(*results, strict=True)]


def _mixes(eqn: Any, ins: list[_Value]) -> bool:
    """Whether it mixes the elements of a leaf, or draws at random."""
    name = eqn.primitive.name
    shapes = _shapes(eqn, [x is not None for x in ins])
    unchanged = {shape_of(v).shape for v in eqn.outvars}
    moved = shapes - unchanged or (shapes and name not in _BY_ELEMENT)
    return name in _DRAWING or bool(moved)


def _shapes(eqn: Any, chosen: Sequence[bool]) -> set[tuple[int, ...]]:
    """Shapes of the chosen inputs that have several elements."""
    kinds = [shape_of(v) for v, taken in zip(eqn.invars, chosen, strict=True) if taken]
    return {kind.shape for kind in kinds if kind.size > 1}


def _join(values: Sequence[_Value]) -> _Value:
    """That of what depends on all of them."""
    known = [value for value in values if value is not None]
    return next(filter(None, known), _WHOLE) if known else None

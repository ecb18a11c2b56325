"""Which optimizers do not mind seeing a slice of each leaf.

A server, or a worker with sharded params, has a slice of each leaf. The update of a
slice is the slice of the leaf's update only if no element's update depends on another
element. That holds for SGD, momentum, Adam and their kin, and not for clipping by a
norm, LAMB, Muon or Adafactor, nor where the same random numbers would be drawn for each
slice.

The program of `update` is walked: what depends on a leaf and has more than one element
must keep its shape in every operation, and enter no operation that mixes elements and
keeps their shape, as products and sorts do.

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

_MIXING = {
    "dot_general", "conv_general_dilated", "sort", "rev", "transpose", "fft",
    "cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp", "cholesky", "lu", "qr",
    "eigh", "svd", "householder_product", "triangular_solve", "gather", "scatter",
    "scatter-add", "dynamic_update_slice",
}  # fmt: skip
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
            f"{caller}: the optimizer's update of an element depends on others "
            f"(its program has {name!r}), and a worker has only a slice of each leaf. "
            "Use an elementwise optimizer such as optax.sgd, optax.adam or "
            "optax.adamw; clip or normalize gradients before, where they are whole, or "
            "reduce them with relaxjax.all_reduce"
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


_WHOLE = ""
_Value = str | None
"""None if it depends on no leaf; `_WHOLE` if each element does on one element; else the
operation that has mixed the elements of a slice."""


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
        if parts := [part.jaxpr for part in programs_of(eqn.params)]:
            return self.nested(parts, ins, scope, count)
        value = _join(ins)
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
    moved = shapes - unchanged or (shapes and name in _MIXING)
    return name in _DRAWING or bool(moved)


def _shapes(eqn: Any, chosen: Sequence[bool]) -> set[tuple[int, ...]]:
    """Shapes of the chosen inputs that have several elements."""
    kinds = [shape_of(v) for v, taken in zip(eqn.invars, chosen, strict=True) if taken]
    return {kind.shape for kind in kinds if kind.size > 1}


def _join(values: Sequence[_Value]) -> _Value:
    """That of what depends on all of them."""
    known = [value for value in values if value is not None]
    return next(filter(None, known), _WHOLE) if known else None

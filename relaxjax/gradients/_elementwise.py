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

from collections.abc import Iterator
from typing import Any

import jax
import optax
from jax.extend import core

from relaxjax._core._extra_args import with_extra_args
from relaxjax._core._jaxprs import programs_of, shapes_of
from relaxjax.programs import shape_of

_MIXING = {
    "dot_general", "conv_general_dilated", "sort", "rev", "transpose", "fft",
    "cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp", "cholesky", "lu", "qr",
    "eigh", "svd", "householder_product", "triangular_solve", "gather", "scatter",
    "scatter-add", "dynamic_update_slice",
}  # fmt: skip
_DRAWING = {"random_bits", "threefry2x32", "rng_uniform", "rng_bit_generator"}


def require_elementwise(
    optimizer: optax.GradientTransformation, params: Any, caller: str
) -> None:
    """Refuses optimizers that reduce, multiply matrices, or draw at random."""
    kinds = shapes_of(params)
    if not jax.tree.leaves(kinds):
        return
    state = jax.eval_shape(optimizer.init, kinds)
    closed = with_extra_args(
        lambda x: jax.make_jaxpr(x.update_of(optimizer))(kinds, state, kinds, x.arrays),
        kinds,
        None,
    )
    several = [shape_of(v).size > 1 for v in closed.jaxpr.invars]  # not the counters
    for name in _mixing(closed.jaxpr, several):
        raise ValueError(
            f"{caller}: the optimizer's update of an element depends on others "
            f"(its program has {name!r}), and a worker has only a slice of each leaf. "
            "Use an elementwise optimizer such as optax.sgd, optax.adam or "
            "optax.adamw; clip or normalize gradients before, where they are whole, or "
            "reduce them with relaxjax.all_reduce"
        )


def _mixing(jaxpr: core.Jaxpr, of_leaves: list[bool]) -> Iterator[str]:
    """Names of operations that mix elements of leaves, or draw at random."""
    mixed = {v for v, is_leaf in zip(jaxpr.invars, of_leaves, strict=True) if is_leaf}
    for eqn in jaxpr.eqns:
        inputs = [not isinstance(v, core.Literal) and v in mixed for v in eqn.invars]
        name = eqn.primitive.name
        if name in _DRAWING:
            yield name
        if any(inputs):
            mixed.update(eqn.outvars)
        programs = [inner.jaxpr for inner in programs_of(eqn.params)]
        shapes = {
            shape_of(v).shape
            for v, is_leaf in zip(eqn.invars, inputs, strict=True)
            if is_leaf and shape_of(v).size > 1
        }
        unchanged = {shape_of(v).shape for v in eqn.outvars}
        if not programs and (shapes - unchanged or (shapes and name in _MIXING)):
            yield name
        for inner in programs:
            spare = len(inputs) - len(inner.invars)  # which come first
            same = [any(inputs)] * len(inner.invars) if spare < 0 else inputs[spare:]
            yield from _mixing(inner, same)

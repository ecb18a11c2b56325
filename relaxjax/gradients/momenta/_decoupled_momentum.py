"""Momentum that each worker keeps for itself, and of which a part is sent.

What Dion and Dion2 share. For every leaf, as an n_in x n_out matrix, with the momentum
M_i of worker i, which never travels as a whole:

    M_i <- M_i + g_i
    T_i  = a part of M_i that is linear in it,   T = mean_i(T_i)     (what is sent)
    M_i <- M_i - (1 - mu) T_i
    out  = a function of T

    mean_i(M_i) <- mean_i(M_i) + mean_i(g_i) - (1 - mu) T:  one worker's rule, applied
                                                            to the mean gradient

So the error feedback of what was not sent, and the momentum of what was, are one. What
T_i loses on its way, in 16 bits or 8, is not in the T_i that is taken back.

A worker of weight 0 is absent: it sends T_i = 0 and keeps its M_i. Where something is
not finite, `out` shows it on all workers, and M_i stays as it was.
"""

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from relaxjax._core._arrays import require_dtypes, require_own
from relaxjax._core._axis import AxisName
from relaxjax._core._checks import is_traced
from relaxjax._core._tree import layout_of
from relaxjax._core._weights import is_absent, weigh_tree
from relaxjax._core.layouts._sharding import sharded_over
from relaxjax._core.traced._marks import marked
from relaxjax.gradients.low_rank._factor_mean import (
    checked_bits,
    for_each_layout,
    mean_in_bits,
)
from relaxjax.gradients.low_rank._low_rank import (
    AsMatrices,
    Matrices,
    Mean,
    matrices_of,
)


class Part(NamedTuple):
    """What a step makes of one leaf's momentum.

    Attributes:
      out: float32[batch, rows, columns], equal on all workers.
      sent: T_i, likewise, this worker's own.
      memory: what the rule keeps of the leaf, equal on all workers.
      sound: bool[], whether all of that is finite; equal on all workers.
    """

    out: jax.Array
    sent: jax.Array
    memory: jax.Array
    sound: jax.Array


class MomentumSpec(NamedTuple):
    """Which matrices, and how they travel; the arguments of `relaxjax.dion2`."""

    caller: str
    axis_name: AxisName
    decay: Any
    bits: int
    algorithm: str
    as_matrices: AsMatrices | None

    def checked(self) -> "MomentumSpec":
        """The same, with numbers that can be, and with "auto" resolved."""
        require_decay(self.caller, "decay", self.decay)
        how = checked_bits(self.caller, self.axis_name, self.algorithm, self.bits)
        return self._replace(algorithm=how)

    def matrices(self, tree: Any) -> list[Matrices]:
        """Each leaf as a batch of matrices."""
        for leaf, shape in layout_of(tree).leaves.items():
            if "," not in shape:
                raise ValueError(
                    f"{self.caller}: leaf {leaf!r} is {shape}, and not a matrix. Give "
                    "vectors and scalars (and embeddings and the head) to another "
                    f"optimizer: optax.partition({{'matrix': relaxjax.{self.caller}"
                    "(...), 'other': optax.chain(relaxjax.all_reduce(...), optax.adamw"
                    "(...))}, labels)"
                )
        found = matrices_of(
            tree,
            rank=1,
            min_compression=0,
            as_matrices=self.as_matrices,
            caller=self.caller,
        )
        return [m or Matrices(1, 0, 0, 0) for m in found]  # a leaf without elements

    def mean(self, bits: int, layouts: Sequence[Hashable]) -> Mean:
        """The mean of arrays over the workers, in one message of a layout."""
        mean = mean_in_bits(self.caller, self.axis_name, self.algorithm, bits)
        return for_each_layout(mean, layouts)


def momentum_reducer(
    spec: MomentumSpec,
    *,
    begin: Callable[[list[Matrices]], list[jax.Array]],
    one_step: Callable[..., list[Part]],
    state_of: Callable[..., Any],
) -> optax.GradientTransformationExtraArgs:
    """The transformation that keeps M_i, and puts out what `one_step` makes of it.

    Args:
      spec: what travels, and how; `checked`.
      begin: from the matrices of all leaves to what the rule keeps of each.
      one_step: from matrices, float32[batch, rows, columns] of each leaf that has any
        elements, their `Matrices`, what the rule keeps, the step's number, and the
        leaves' layouts (`sharded_over`).
      state_of: the class of the state: a counter, M_i, the memory, a layout.
    """

    def init(params: optax.Params) -> Any:
        require_dtypes(params, spec.caller, "it")
        memory = begin(spec.matrices(params))
        momentum = jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.float32), params)
        tree = jax.tree.structure(params)
        start = jnp.zeros((), jnp.uint32)
        return state_of(start, momentum, tree.unflatten(memory), layout_of(params))

    def update(updates, state, params=None, *, weight=None, **extra_args) -> Any:
        del params, extra_args
        count, momentum, memory, layout = state
        require_own(spec.caller, spec.axis_name, layout, updates)
        leaves, tree = jax.tree.flatten(weigh_tree(updates, weight, spec.axis_name))
        before, kept = jax.tree.leaves(momentum), jax.tree.leaves(memory)
        rows = dict(enumerate(spec.matrices(updates)))
        some = {i: m for i, m in rows.items() if m.rank}
        now = [m + g.astype(jnp.float32) for m, g in zip(before, leaves, strict=True)]
        absent = is_absent(weight)
        x = [jnp.where(absent, 0, m.of(now[i])) for i, m in some.items()]
        remembered = [kept[i] for i in some]
        held = sharded_over(updates)
        layouts = [held[i] for i in some]
        parts = (
            one_step(x, [*some.values()], remembered, count, layouts) if some else []
        )
        for i, part in zip(some, parts, strict=True):
            left = now[i] - (1 - spec.decay) * part.sent.reshape(now[i].shape)
            before[i] = jnp.where(part.sound, left, before[i])
            kept[i] = jnp.where(part.sound, part.memory, kept[i])
            out = jnp.where(part.sound, part.out, jnp.nan)
            leaves[i] = out.reshape(leaves[i].shape)
        out = optax.tree.cast_like(tree.unflatten(leaves), updates)
        after = tree.unflatten(before), tree.unflatten(kept)
        return out, state_of(count + 1, *after, layout)

    return marked(spec.caller, "momenta", spec.axis_name, init, update)


def require_decay(caller: str, name: str, value: Any) -> None:
    """Refuses numbers outside [0, 1)."""
    if not is_traced(value) and not 0 <= value < 1:
        raise ValueError(
            f"{caller}: {name}={value} must be in [0, 1); 0.95 is usual, and 0 keeps "
            "nothing"
        )


def by_shape(x: jax.Array) -> jax.Array:
    """sqrt(n_out / n_in) for matrices [batch, n_in, n_out]: alike for any width."""
    return jnp.float32((x.shape[2] / x.shape[1]) ** 0.5)


def all_finite(*arrays: jax.Array) -> jax.Array:
    """bool[]: whether all elements are finite."""
    return functools.reduce(jnp.logical_and, [jnp.isfinite(x).all() for x in arrays])

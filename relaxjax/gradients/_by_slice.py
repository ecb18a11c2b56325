"""Which optimizers do something else with a slice of a leaf than with the leaf.

A mask or labels made by a function of the params, such as "all of two dimensions",
and a rate scaled by a leaf's shape, see flat slices [c] where params are sharded. So
the optimizer is traced with whole leaves and with the slices that the step will give
it, and what it does with an element must be the same for each leaf
(`relaxjax.gradients._numbering`). Relaxations in it are passed over: what they do with
slices is theirs.

Cost: two traces of `init` and `update`.
"""

from functools import partial
from typing import Any

import jax
import optax

from relaxjax._core._arrays import shapes_of
from relaxjax._core._tree import leaf_name
from relaxjax._core.traced._asked import passed_over
from relaxjax._core.traced._extra_args import FAILURES, with_extra_args
from relaxjax.collectives import is_shard
from relaxjax.gradients._elementwise import tracing_for
from relaxjax.gradients._numbering import numbers_of
from relaxjax.workers import WorkerMesh


def require_same_by_slice(
    optimizer: optax.GradientTransformation,
    params: Any,
    slices: Any,
    caller: str,
    workers: WorkerMesh | None = None,
) -> None:
    """Refuses optimizers that look at the shapes of leaves, or at their paths.

    Args:
      optimizer: an elementwise optimizer.
      params: whole leaves.
      slices: what the step gives the optimizer: slices, or a `Shard` of each.
      caller: who asks, for the error.
      workers: whose axes the optimizer may have relaxations over.
    """
    if not jax.tree.leaves(params):
        return
    whole = _numbers(optimizer, params, workers)
    try:
        sliced = _numbers(optimizer, slices, workers)
    except FAILURES as error:
        raise ValueError(
            f"{caller}: the optimizer takes whole leaves and no slices of them: "
            f"{type(error).__name__}: {error}. {_REMEDY}"
        ) from error
    others = sorted(key for key in whole | sliced if whole.get(key) != sliced.get(key))
    for what, name in others:
        raise ValueError(
            f"{caller}: the optimizer does something else with the slices of "
            f"{what} {name!r} than with the leaf: it looks at shapes or at paths, as "
            f"mask=lambda p: jax.tree.map(lambda x: x.ndim > 1, p) does. {_REMEDY}"
        )


_REMEDY = (
    "Workers hold slices, so make from whole params what chooses between leaves, and "
    "give it as a tree: mask=mask_fn(params), or labels such as label_fn(params)"
)


def _numbers(
    optimizer: optax.GradientTransformation, tree: Any, workers: WorkerMesh | None
) -> dict[tuple[str, str], str]:
    """The numbers of updates, states and first states, by what they are and name."""
    kinds = shapes_of(tree)
    with passed_over(), tracing_for(workers) as trace:
        # A function of its own: JAX remembers the trace of one that it knows.
        init = partial(optimizer.init)
        first, state = trace(init, return_shape=True)(kinds)
        (program, out), arrays = with_extra_args(
            lambda x: (
                trace(x.update_of(optimizer), return_shape=True)(
                    kinds, state, kinds, x.arrays
                ),
                x.arrays,
            ),
            kinds,
            None,
        )
    ins = ["/".join(x) for x in _names(kinds, state, kinds, arrays)]
    start = numbers_of(first, ins[: len(_names(kinds))])
    begun = zip(_names((), state), start, strict=True)
    after = zip(_names(*out), numbers_of(program, ins), strict=True)
    starts = {(f"the first {what}", name): number for (what, name), number in begun}
    return {**starts, **dict(after)}


_KINDS = "update", "state", "param", "argument"


def _names(*trees: Any) -> list[tuple[str, str]]:
    """What each leaf is, and its name; a `Shard` is named as its leaf."""
    values = [
        jax.tree.map(lambda x: x.value if is_shard(x) else x, tree, is_leaf=is_shard)
        for tree in trees
    ]
    return [
        (what, leaf_name(path))
        for what, tree in zip(_KINDS, values, strict=False)
        for path, _ in jax.tree.leaves_with_path(tree)
    ]

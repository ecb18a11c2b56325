"""A relaxation without fusion, and without overlap: what the ablation runs.

    unfused        each leaf has a transformation of its own, hence its own messages
    wait_for_all   no leaf leaves before the last gradient is there

Both are transformations around the relaxation, which knows nothing of them.

Cost: unfused, a state of the optimizer's counters for each leaf.
"""

from collections.abc import Callable, Hashable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from relaxjax.collectives import all_after


def unfused(
    build: Callable[[str], optax.GradientTransformation], name: str
) -> optax.GradientTransformationExtraArgs:
    """The relaxation, leaf by leaf; vectors without its compressor.

    Args:
      build: `build(name)`, a relaxation's transformation.
      name: the relaxation, as `relaxjax train` spells it.
    """

    def parts(tree: Any) -> optax.GradientTransformationExtraArgs:
        leaves, shape = jax.tree.flatten(tree)
        each: dict[Hashable, optax.GradientTransformation] = {
            str(i): build(name if x.ndim > 1 else name.split("+")[0])
            for i, x in enumerate(leaves)
        }
        return optax.partition(each, shape.unflatten(list(each)))

    def init(params: optax.Params) -> Any:
        return parts(params).init(params)

    def update(updates, state, params=None, **extra_args):
        return parts(updates).update(updates, state, params, **extra_args)

    return optax.GradientTransformationExtraArgs(init, update)


def wait_for_all() -> optax.GradientTransformation:
    """The identity, whose leaves are ready only when all of its inputs are."""

    def together(updates: Any, params: Any = None) -> Any:
        del params
        leaves, shape = jax.tree.flatten(updates)
        last = sum(jnp.ravel(x)[:1] for x in leaves)
        return shape.unflatten(all_after(leaves, jnp.asarray(last)))

    return optax.stateless(together)

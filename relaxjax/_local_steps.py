"""Local steps: workers go their own ways and synchronise every `sync_every` steps.

    x_i <- x_i + u_i                                  (each step)
    a <- a + O(mean_i C(a - x_i)),  x_i <- a          (after it, each H-th step)

u_i is the update of the worker's own optimizer, O and C are those of the outer step.

Each worker's optimizer state is its own and goes on through it.

Cost: of an outer step (`relaxjax._outer`), once in H steps; nothing is sent in between.
Under `jax.vmap`, so in emulation, both branches run and one is selected: no time is
saved.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from relaxjax._either import either
from relaxjax._layout import layout_of
from relaxjax._local import LocalState
from relaxjax._numbers import require_whole
from relaxjax._outer import Outer, OuterStep, like


class OuterState(NamedTuple):
    """State of `local_sgd`, `slow_momentum` and of the outer half of `diloco`.

    Attributes:
      step: int32, steps since the last outer step.
      kept: its model, the outer optimizer's state, the reducer's.
      leaves: those that differ between workers in between.
    """

    step: jax.Array
    kept: Outer
    leaves: LocalState


def local_steps(sync_every: int, outer: OuterStep) -> Any:
    """The transformation, of updates to each worker's own model.

    Raises:
      ValueError: `sync_every < 1`.
    """
    require_whole(outer.caller, "sync_every", sync_every)

    def init(params: optax.Params) -> Any:
        marks = LocalState(layout_of(params))
        return OuterState(jnp.zeros((), jnp.int32), outer.init(params), marks)

    def update(updates, state, params=None, *, weight=None, **extra_args) -> Any:
        del extra_args
        outer.require(state, updates, params, weight)
        step, kept, leaves = state
        u, x = like(kept.anchor, updates), like(kept.anchor, params)

        def synchronise(u: Any, kept: Outer) -> tuple[Any, Outer]:
            gradient = jax.tree.map(lambda a, x, u: a - (x + u), kept.anchor, x, u)
            kept = outer.update(gradient, kept)
            return jax.tree.map(jnp.subtract, kept.anchor, x), kept

        last = step == sync_every - 1
        u, kept = either(last, synchronise, lambda *own: own, u, kept)
        return u, OuterState(jnp.where(last, 0, step + 1), kept, leaves)

    return optax.GradientTransformationExtraArgs(init, update)

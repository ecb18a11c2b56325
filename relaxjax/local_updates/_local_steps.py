"""Local steps: workers go their own ways and synchronise every `sync_every` steps.

    x_i <- x_i + u_i                                  (each step)
    a <- a + O(mean_i C(a - x_i)),  x_i <- a          (after it, each H-th step)

u_i is the update of the worker's own optimizer, O and C are those of the outer step.

Each worker's optimizer state is its own and goes on through it.

Cost: of an outer step (`relaxjax.local_updates._outer_step`), once in H steps; nothing
is sent in between. Under `jax.vmap`, so in emulation, both branches run and one is
selected: no time is saved.
"""

import functools
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from relaxjax._core._checks import require_whole
from relaxjax._core._cond import cond
from relaxjax._core._local import LocalState
from relaxjax._core._merge_rules import EQUAL, MEAN
from relaxjax._core._tree import layout_of
from relaxjax.local_updates._outer_step import OuterStep, like, outer_gradient


class OuterState(NamedTuple):
    """State of `local_sgd`, its kin, and of the outer half of `diloco`.

    Attributes:
      step: int32, counted around; 0 after an outer step.
      kept: its model, the outer optimizer's state, the reducer's (`Outer`).
      leaves: those that differ between workers in between.
    """

    step: Annotated[jax.Array, EQUAL]
    kept: Any
    leaves: Annotated[LocalState, MEAN]


def local_steps(
    sync_every: int,
    outer: OuterStep,
    start: Callable[[optax.Params], Any] | None = None,
    rule: Callable[[Any, Any], Any] | None = None,
) -> optax.GradientTransformationExtraArgs:
    """The transformation, of updates to each worker's own model.

    Args:
      sync_every: H.
      outer: who is who, and what is refused.
      start: what is kept, with an `anchor`; None: as of the outer step.
      rule: from a - x_i and what is kept to what is kept next; None: as of the outer
        step, and then `update` takes `weight=` in it: what this worker's model counts
        for. With a weight of zero it is absent, and goes on from its own.

    Raises:
      ValueError: `sync_every < 1`.
    """
    require_whole(outer.caller, "sync_every", sync_every)
    start = start or outer.init

    def init(params: optax.Params) -> Any:
        marks = LocalState(layout_of(params))
        return OuterState(jnp.zeros((), jnp.int32), start(params), marks)

    def update(updates, state, params=None, *, weight=None, **extra_args) -> Any:
        del extra_args
        outer.require(state, updates, params, None if rule is None else weight)
        step, kept, leaves = state
        u, x = like(kept.anchor, updates), like(kept.anchor, params)

        last = step == sync_every - 1
        land = functools.partial(synchronize_if_present, outer, rule, weight, x)
        u, kept = cond(last, land, lambda *own: own, u, kept)
        return u, OuterState(jnp.where(last, 0, step + 1), kept, leaves)

    return optax.GradientTransformationExtraArgs(init, update)


def synchronize_if_present(
    outer: OuterStep,
    rule: Callable[[Any, Any], Any] | None,
    weight: jax.Array | float | None,
    x: Any,
    u: Any,
    kept: Any,
) -> tuple[Any, Any]:
    """As `synchronize`; who has no weight goes on from its own model."""
    mean = functools.partial(outer.update, weight=weight)
    moved, kept = synchronize(rule or mean, x, u, kept)
    if weight is None:
        return moved, kept
    absent = jnp.asarray(weight) == 0
    stay = functools.partial(jnp.where, absent)
    return jax.tree.map(stay, u, moved), kept


def synchronize(
    rule: Callable[[Any, Any], Any], x: Any, u: Any, kept: Any
) -> tuple[Any, Any]:
    """The updates that end at the next anchor, and what is kept next by the rule."""
    kept = rule(outer_gradient(kept.anchor, x, u), kept)
    return jax.tree.map(jnp.subtract, kept.anchor, x), kept

"""Local steps: workers go their own ways and meet every `sync_every` steps.

    x_i <- x_i + u_i                                  (each step)
    a <- a + O(mean_i C(a - x_i)),  x_i <- a          (after it, each H-th step)

u_i is the update of the worker's own optimizer, O and C are those of a meeting.

Each worker's optimizer state is its own and goes on through a meeting.

Cost: of a meeting (`relaxjax._outer`), once in H steps; nothing is sent in between.
Under `jax.vmap`, so in emulation, both branches run and one is selected: no time is
saved.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from relaxjax._all_reduce import all_reduce
from relaxjax._axis import AxisName, axis_size
from relaxjax._either import either
from relaxjax._layout import layout_of, require_params, require_same
from relaxjax._local import LocalState
from relaxjax._numbers import require_whole
from relaxjax._outer import Meeting, Outer, like
from relaxjax._weights import refuse_weight


class OuterState(NamedTuple):
    """State of `local_sgd`, `slow_momentum` and of the outer half of `diloco`.

    Attributes:
      step: int32, steps since the last meeting.
      kept: of the last meeting: its model, the outer optimizer's state, the reducer's.
      leaves: those that differ between workers in between.
    """

    step: jax.Array
    kept: Outer
    leaves: LocalState


def every_few_steps(
    caller: str,
    axis_name: AxisName,
    sync_every: int,
    outer: optax.GradientTransformation,
    **reducer: Any,
) -> optax.GradientTransformationExtraArgs:
    """The transformation; `reducer` is what `relaxjax.all_reduce` takes.

    Raises:
      ValueError: `sync_every < 1`; what `relaxjax.all_reduce` refuses.
    """
    require_whole(caller, "sync_every", sync_every)
    meeting = Meeting(caller, outer, all_reduce(axis_name, **reducer))

    def init(params: optax.Params) -> Any:
        marks = LocalState(layout_of(params))
        return OuterState(jnp.zeros((), jnp.int32), meeting.start(params), marks)

    def update(updates, state, params=None, *, weight=None, **extra_args) -> Any:
        del extra_args
        axis_size(axis_name, caller)
        require_params(params, caller, "which it averages")
        refuse_weight(weight, caller)
        require_same(state.leaves.layout, updates, caller)
        step, kept, leaves = state
        u, x = like(kept.anchor, updates), like(kept.anchor, params)

        def meet(u: Any, kept: Outer) -> tuple[Any, Outer]:
            gradient = jax.tree.map(lambda a, x, u: a - (x + u), kept.anchor, x, u)
            kept = meeting.moved(gradient, kept)
            return jax.tree.map(jnp.subtract, kept.anchor, x), kept

        last = step == sync_every - 1
        u, kept = either(last, meet, lambda *own: own, u, kept)
        return u, OuterState(jnp.where(last, 0, step + 1), kept, leaves)

    return optax.GradientTransformationExtraArgs(init, update)

"""Local steps: workers go their own ways and synchronize every `sync_every` steps.

    x_i <- x_i + u_i                                  (each step)
    a <- the rule's next anchor, given a - x_i        (after each H-th step)
    x_i <- a

u_i is the update of the worker's own optimizer, whose state stays its own and goes on;
a is the anchor, the model of the last synchronization. The rule is the method's: see
`relaxjax.local_updates.periodic._diloco` for the one that most of them share.

Cost: that of the rule, once in H steps; in between nothing is sent, nor copied.
"""

import functools
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import jax
import optax

from relaxjax._core._arrays import require_same
from relaxjax._core._axis import AxisName, axis_size
from relaxjax._core._checks import require_params
from relaxjax._core._local import LocalState
from relaxjax._core._merge_rules import EQUAL, MEAN
from relaxjax._core._tree import layout_of
from relaxjax._core._weights import refuse_weight, unless_absent
from relaxjax._core.traced._marks import marked
from relaxjax.compression import Compressor
from relaxjax.gradients import all_reduce
from relaxjax.local_updates.common._outer_merge import as_merge, merge_rule, own_reducer
from relaxjax.merges import Rule
from relaxjax.periods import Meetings, Period, calendar


class OuterState(NamedTuple):
    """State of `local_sgd`, its kin, and of the outer half of `diloco`.

    Attributes:
      step: int32, the number of steps, modulo the period; or, under a schedule, the
        counters of `relaxjax.periods.Meetings`. Equal on all workers.
      kept: the rule's memory: the anchor, the outer optimizer's state, the reducer's.
      leaves: the leaves that differ between workers in between.
    """

    step: Annotated[jax.Array | Meetings, EQUAL]
    kept: Any
    leaves: Annotated[LocalState, MEAN]


class ExchangeSpec(NamedTuple):
    """How a method merges outer gradients: by `all_reduce`'s arguments and a rule.

    Or by a reducer that the user has given, in place of `all_reduce`.
    """

    caller: str
    axis_name: AxisName
    compressor: Compressor | None = None
    algorithm: str = "auto"
    bucket_bytes: int = 8 * 2**20
    specs: Any = None
    seed: int = 0
    given: optax.GradientTransformation | None = None
    merge: str | Rule = "mean"

    def reducer(self) -> optax.GradientTransformationExtraArgs:
        """What merges over the workers, compressed or not."""
        arguments = self._asdict()
        caller, given, merge = map(arguments.pop, ("caller", "given", "merge"))
        if given is not None:
            given = own_reducer(given, arguments, self)
        elif isinstance(merge, Rule):
            return as_merge(caller, all_reduce, op=merge, **arguments)
        tx = given or all_reduce(**arguments)
        return merge_rule(caller, merge)(tx, self.axis_name)

    def require(self, state: Any, updates: Any, params: Any, weight: Any) -> None:
        """Refuses an `update` without params, with a weight, or of another tree."""
        axis_size(self.axis_name, self.caller)
        require_params(params, self.caller, "which it averages")
        refuse_weight(weight, self.caller)
        require_same(state.leaves.layout, updates, self.caller)


def local_steps(
    exchange: ExchangeSpec,
    sync_every: Period,
    start: Callable[[optax.Params], Any],
    rule: Callable[..., Any],
) -> optax.GradientTransformationExtraArgs:
    """The transformation of a method, which comes after each worker's optimizer.

    `start(params)` is the rule's first memory, which has an `anchor`. From a - x_i
    `rule(gradient, memory, weight)` makes the next, whose anchor is the next x_i. The
    weight, or None, is what this worker's model counts for: with zero it is absent, and
    goes on from its own model.
    """
    times = calendar(exchange.caller, "sync_every", sync_every)

    def init(params: optax.Params) -> Any:
        leaves = LocalState(layout_of(params))
        return OuterState(times.start(), start(params), leaves)

    def update(updates, state, params=None, *, weight=None, **extra_args) -> Any:
        del extra_args
        exchange.require(state, updates, params, None)
        step, memory, leaves = state
        u, x = (optax.tree.cast_like(tree, memory.anchor) for tree in (updates, params))

        meet = functools.partial(synchronize, rule, weight, x)
        (u, memory), step = times.step(step, meet, (u, memory))
        return u, OuterState(step, memory, leaves)

    return marked(exchange.caller, "models", exchange.axis_name, init, update)


def synchronize(rule: Callable[..., Any], weight: Any, x: Any, now: Any) -> Any:
    """The updates that end at the rule's next anchor, and its next memory."""
    u, memory = now
    memory = rule(outer_gradient(memory.anchor, x, u), memory, weight)
    moved = optax.tree.sub(memory.anchor, x)
    return unless_absent(weight, moved, u), memory


def outer_gradient(anchor: Any, params: Any, updates: Any) -> Any:
    """A worker's outer gradient, after it has moved: a - (x + u)."""
    return jax.tree.map(lambda a, x, u: a - (x + u), anchor, params, updates)

"""The outer step of local methods: models that went apart become one again.

Worker i holds x_i; a is the model of the last outer step, equal on all workers. C is a
compressor with its feedback, or the identity; O an outer optimizer:

    D = mean_i(C(a - x_i))          (the outer gradient: what is sent)
    a = a + O(D)
    x_i = a

With O = SGD of rate 1, a becomes the mean of the models. What an optimizer descends
along is a - x, as that is how a gradient points.

Cost: of `all_reduce` for the params in float32. State: a, O's state, and the feedback.
"""

from typing import Annotated, Any, NamedTuple

import jax
import optax

from relaxjax._core._axis import AxisName, axis_size
from relaxjax._core._dtypes import wide_copy
from relaxjax._core._merge_rules import MEAN
from relaxjax._core._tree import require_params, require_same
from relaxjax._core._weights import refuse_weight
from relaxjax.compression import Compressor
from relaxjax.gradients import all_reduce


class AnchorState(NamedTuple):
    """What is kept from one outer step to the next.

    Attributes:
      anchor: a, in float32 where a param is narrower, equal on all workers.
      outer: of the outer optimizer, equal on all workers.
      reducer: of the `all_reduce` of outer gradients.
    """

    anchor: Annotated[Any, MEAN]
    outer: Any
    reducer: Any


class OuterStep(NamedTuple):
    """How workers synchronise.

    Attributes:
      caller: the method.
      axis_name: of the workers.
      outer: O.
      reducer: the mean over the workers, compressed or not.
    """

    caller: str
    axis_name: AxisName
    outer: optax.GradientTransformation
    reducer: optax.GradientTransformationExtraArgs

    def init(self, params: Any) -> AnchorState:
        """Before the first; params are equal on all workers.

        Raises:
          TypeError: an outer optimizer that wants what nobody gives it.
        """
        anchor = wide_copy(params)
        kept = AnchorState(anchor, self.outer.init(anchor), self.reducer.init(anchor))
        try:
            jax.eval_shape(self.outer.update, anchor, kept.outer, anchor)
        except TypeError as error:
            raise TypeError(
                f"{self.caller}: outer= could not be called as update(updates, state, "
                f"params): {error}. Outer gradients come without a loss or other "
                "arguments; take an optimizer that needs none, such as optax.sgd(0.7, "
                "momentum=0.9, nesterov=True)"
            ) from error
        return kept

    def update(
        self, gradient: Any, kept: AnchorState, weight: Any = None
    ) -> AnchorState:
        """The next, whose anchor is the common model.

        Args:
          gradient: a - x_i, of this worker, like the anchor.
          kept: of the step before.
          weight: as of `relaxjax.all_reduce`.
        """
        mean, reduced = self.reducer.update(gradient, kept.reducer, weight=weight)
        return self.along(mean, kept._replace(reducer=reduced))

    def along(self, mean: Any, kept: AnchorState) -> AnchorState:
        """The next, along an outer gradient that is known; nothing is sent."""
        step, outer = self.outer.update(mean, kept.outer, kept.anchor)
        anchor = jax.tree.map(lambda a, s: a + s.astype(a.dtype), kept.anchor, step)
        return AnchorState(anchor, outer, kept.reducer)

    def require(self, state: Any, updates: Any, params: Any, weight: Any) -> None:
        """Refuses a call of `update` that is none; `state` has `leaves`.

        Raises:
          ValueError: no params, a weight, another tree than `init` saw.
          NameError: outside the axis.
        """
        axis_size(self.axis_name, self.caller)
        require_params(params, self.caller, "which it averages")
        refuse_weight(weight, self.caller)
        require_same(state.leaves.layout, updates, self.caller)


def outer_step(
    caller: str,
    axis_name: AxisName,
    outer: optax.GradientTransformation | None,
    compressor: Compressor | None,
    algorithm: str,
    bucket_bytes: int,
    seed: int,
    specs: Any,
) -> OuterStep:
    """The step, with DiLoCo's outer optimizer for None; the rest as of `all_reduce`."""
    outer = outer or optax.sgd(0.7, momentum=0.9, nesterov=True)
    reducer = all_reduce(
        axis_name,
        algorithm=algorithm,
        compressor=compressor,
        bucket_bytes=bucket_bytes,
        specs=specs,
        seed=seed,
    )
    return OuterStep(caller, axis_name, outer, reducer)


def outer_gradient(anchor: Any, params: Any, updates: Any) -> Any:
    """A worker's outer gradient, after it has moved: a - (x + u)."""
    return jax.tree.map(lambda a, x, u: a - (x + u), anchor, params, updates)


def like(anchor: Any, tree: Any) -> Any:
    """The tree in the anchor's dtypes."""
    return jax.tree.map(lambda a, x: x.astype(a.dtype), anchor, tree)

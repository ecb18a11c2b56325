"""DiLoCo: many local steps, then one step of an outer optimizer along their mean.

Source: Douillard et al. 2023; MuLoCo, with Muon inside, Therien et al. 2025. Worker i
takes H steps of its inner optimizer from the common model a; its optimizer's state goes
on, and is not averaged. C is a compressor with its feedback, or the identity, and O the
outer optimizer:

    x_i <- x_i + u_i                      (each step)
    D = mean_i C(a - x_i)                 (after each H-th: the outer gradient)
    a = a + O(D)
    x_i = a

By default O is Nesterov's: v = mu v + D, O(D) = -eta (D + mu v). An optimizer descends
along a - x, as that is how a gradient points. With O = SGD(1), a becomes the mean of
the models, and this is local SGD; with Muon inside it is MuLoCo (Therien et al. 2025);
with a compressor of chunked top-k and few bits, decayed feedback and outer SGD(1)
SparseLoCo (Sarfi et al. 2025).

Cost: what `all_reduce` sends for the params in float32, once in H steps: 1 / H of a
gradient's all-reduce. State beside the inner optimizer's: the anchor a, the outer
momentum, and the feedback, each of the params' size.
"""

from typing import Annotated, Any, NamedTuple

import jax
import optax

from relaxjax._core._axis import AxisName
from relaxjax._core._checks import require_transformation
from relaxjax._core._merge_rules import MEAN
from relaxjax._core._owed import OWED_BY_MODELS
from relaxjax._core._tree import wide_copy
from relaxjax._core.traced._marks import optimizer_in_it, whole_method
from relaxjax.compression import Compressor
from relaxjax.local_updates.common._local_steps import ExchangeSpec, local_steps
from relaxjax.merges import Rule
from relaxjax.periods import Period


class AnchorState(NamedTuple):
    """State of an outer step.

    Attributes:
      anchor: a, in float32 where a param is narrower, equal on all workers.
      outer: the outer optimizer's state, equal on all workers.
      reducer: the state of the `all_reduce` of outer gradients.
    """

    anchor: Annotated[Any, MEAN]
    outer: Any
    reducer: Annotated[Any, OWED_BY_MODELS]


class OuterStep(NamedTuple):
    """The outer step of DiLoCo and its kin: a <- a + O(mean_i C(a - x_i))."""

    caller: str
    outer: optax.GradientTransformation
    reducer: optax.GradientTransformationExtraArgs

    def init(self, params: Any) -> AnchorState:
        """The first state; refuses an outer optimizer that needs other arguments."""
        a = wide_copy(params)
        state = AnchorState(a, self.outer.init(a), self.reducer.init(a))
        try:
            jax.eval_shape(self.outer.update, a, state.outer, a)
        except TypeError as error:
            raise TypeError(
                f"{self.caller}: outer= could not be called as update(updates, state, "
                f"params): {error}. Take an optimizer that needs no loss and no other "
                "arguments, such as optax.sgd(0.7, momentum=0.9, nesterov=True)"
            ) from error
        return state

    def update(self, gradient: Any, state: AnchorState, weight: Any) -> AnchorState:
        """The next state, from a - x_i of this worker; its anchor is common to all."""
        mean, reducer = self.reducer.update(gradient, state.reducer, weight=weight)
        return self.apply_outer(mean, state._replace(reducer=reducer))

    def apply_outer(self, mean: Any, state: AnchorState) -> AnchorState:
        """The next state, from an outer gradient that is known; nothing is sent."""
        with optimizer_in_it():
            step, outer = self.outer.update(mean, state.outer, state.anchor)
        anchor = jax.tree.map(lambda a, s: a + s.astype(a.dtype), state.anchor, step)
        return AnchorState(anchor, outer, state.reducer)


def outer_step(
    exchange: ExchangeSpec, outer: optax.GradientTransformation | None
) -> OuterStep:
    """The outer step of a method; None is DiLoCo's outer optimizer."""
    outer = optax.sgd(0.7, momentum=0.9, nesterov=True) if outer is None else outer
    require_transformation(exchange.caller, "outer", outer)
    return OuterStep(exchange.caller, outer, exchange.reducer())


def diloco(
    inner: optax.GradientTransformation,
    axis_name: AxisName,
    sync_every: Period,
    *,
    outer: optax.GradientTransformation | None = None,
    merge: str | Rule = "mean",
    compressor: Compressor | None = None,
    algorithm: str = "auto",
    bucket_bytes: int = 8 * 2**20,
    specs: Any = None,
    seed: int = 0,
    reducer: optax.GradientTransformation | None = None,
) -> optax.GradientTransformationExtraArgs:
    """An optimizer whose workers synchronize every `sync_every` steps, with momentum.

    Use it as the whole optimizer, without an all-reduce before it.

    Args:
      inner: each worker's optimizer, which sees its own gradients.
      axis_name: the axis, or a tuple (outer, inner).
      sync_every: H, the number of steps from one outer step to the next, 1 or more; or
        a schedule of `relaxjax.periods`, which is asked after each of them.
      outer: the optimizer of the outer gradients; None is SGD with rate 0.7 and
        Nesterov momentum 0.9. A schedule in it counts outer steps.
      merge: "mean"; "rda", the mean length along the mean direction, leaf by leaf
        (`relaxjax.local_updates.common._outer_merge`); or a rule of `relaxjax.merges`,
        by which a wrong worker ruins nothing, and one that is not finite is absent.
      compressor: the compressor of the outer gradients, of `relaxjax.compression`.
      algorithm: see `relaxjax.all_reduce`, which averages the outer gradients.
      bucket_bytes: see `relaxjax.all_reduce`.
      specs: see `relaxjax.all_reduce`.
      seed: the seed of random compressors.
      reducer: what averages the outer gradients in place of `relaxjax.all_reduce`: a
        relaxation that comes before an optimizer, over the same axis, such as
        `relaxjax.power_sgd`. The arguments from `compressor` on are its own then.

    Returns:
      A gradient transformation whose `update` needs `params`: a chain of the inner
      optimizer and of the outer half. Updates come out in float32 where a param is
      narrower. In an outer step, `update` takes `weight=`, as in `local_sgd`.

    Raises:
      TypeError: in `init`: an outer optimizer that needs a loss or other arguments.
      ValueError: `sync_every < 1`; an unknown `merge`; what `relaxjax.all_reduce`
        refuses; an argument of it beside `reducer`; in `update` another tree than
        `init` saw, or no `params`.
      NameError: `update` outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp, optax, relaxjax
      >>> tx = relaxjax.diloco(optax.sgd(1.0), "data", 2, outer=optax.sgd(0.5))
      >>> def train(gradient):
      ...     x = jnp.float32(0)
      ...     state = tx.init(x)
      ...     for _ in range(2):
      ...         updates, state = tx.update(gradient, state, x)
      ...         x = optax.apply_updates(x, updates)
      ...     return x
      >>> print(jax.vmap(train, axis_name="data")(jnp.array([1.0, 2.0, 6.0])))
      [-3. -3. -3.]
    """
    require_transformation("diloco", "inner", inner)
    exchange = ExchangeSpec(
        "diloco", axis_name, compressor, algorithm, bucket_bytes, specs, seed, reducer
    )._replace(merge=merge)
    step = outer_step(exchange, outer)
    outer_half = local_steps(exchange, sync_every, step.init, step.update)
    return whole_method("diloco", inner, outer_half)

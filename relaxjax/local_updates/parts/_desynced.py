"""DES-LOC: params and the moments of an optimizer, averaged at periods of their own.

Source: Iacob et al. 2025 (DES-LOC), as second-hand notes give it. Worker i takes steps
of its own optimizer; x_i are its params, u_i and v_i fields of the optimizer's state,
such as Adam's moments, with periods K_x, K_u, K_v:

    u_i, v_i, x_i <- the optimizer's step          (each step)
    x_i <- mean_j x_j                              (after each K_x-th)
    u_i <- mean_j u_j                              (after each K_u-th)
    v_i <- mean_j v_j                              (after each K_v-th)

The paper averages at the start of the next step, after the gradient of x_i was taken:
the same for u and v, while here the next gradient is that of the mean model. A moment
with decay b halves in ln 0.5 / ln b steps, so that slow ones need fewer means: K_u =
3 K_x and K_v = 6 K_x for Adam. All periods equal are Local Adam, no period for u and v
is `local_sgd`; with all periods 1, equal gradients make it Adam.

With a compressor C, each of them has an anchor a, as in `local_sgd`:

    a <- a - mean_i C(a - x_i),  x_i <- a

and second moments are kept from falling below 0 by what C loses.

Cost: what `all_reduce` sends, 4 bytes for each element of x / K_x + u / K_u + v / K_v:
with K, 3 K, 6 K 1.5 / K of a gradient's, half of Local Adam's. State: none beside the
optimizer's; with a compressor the anchors, and the feedback's.
"""

import functools
from collections.abc import Collection, Mapping
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from relaxjax._core._axis import AxisName
from relaxjax._core._checks import require_transformation
from relaxjax._core._cond import when
from relaxjax._core._local import LocalState
from relaxjax._core._merge_rules import EQUAL, MEAN
from relaxjax._core._tree import layout_of, wide_copy, widened
from relaxjax._core._weights import is_absent
from relaxjax._core.traced._asked import meets_too
from relaxjax._core.traced._marks import marked, optimizer_in_it
from relaxjax.compression import Compressor
from relaxjax.local_updates.common._local_steps import ExchangeSpec
from relaxjax.local_updates.parts._fields import (
    fields_of_floats,
    named_fields,
    require_field,
    with_fields,
)
from relaxjax.periods import Meetings, Period, Together, calendar, together

_CALLER = "desynced"
_PARAMS = "params"


class AveragedState(NamedTuple):
    """State of what `desynced` averages at one period.

    Attributes:
      anchor: a, in float32 where it is narrower; () without a compressor.
      reducer: the state of the `all_reduce`.
    """

    anchor: Annotated[Any, MEAN]
    reducer: Any


class DesyncedState(NamedTuple):
    """State of `desynced`.

    Attributes:
      step: int32, the number of steps, modulo all periods; or, where one of them is a
        schedule, the counters of `relaxjax.periods.Meetings` of each. Equal on all
        workers.
      inner: the optimizer's, this worker's own between two means.
      averaged: one for each of `periods`, in alphabetical order of their names.
      leaves: the leaves that differ between workers in between.
    """

    step: Annotated[jax.Array | dict[str, Meetings], EQUAL]
    inner: Any
    averaged: tuple[AveragedState, ...]
    leaves: Annotated[LocalState, MEAN]


def desynced(
    inner: optax.GradientTransformation,
    axis_name: AxisName,
    *,
    periods: Mapping[str, Period] | Period,
    compressor: Compressor | None = None,
    nonnegative: Collection[str] = ("nu",),
    algorithm: str = "auto",
    bucket_bytes: int = 8 * 2**20,
    seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
    """An optimizer whose workers average params seldom, and moments more seldom.

    Use it as the whole optimizer, without an all-reduce before it.

    Args:
      inner: each worker's optimizer, which sees its own gradients.
      axis_name: the axis, or a tuple (outer, inner).
      periods: numbers of steps, 1 or more, by name: "params", and fields of the states
        of `inner`, such as "mu" and "nu" of Adam or "trace" of momentum. Fields that
        are not named stay each worker's own. A number is that of params and of every
        field of floats, for optimizers that remember params. Or schedules of
        `relaxjax.periods` in their place, one or all.
      compressor: the compressor of changes since the last mean, of
        `relaxjax.compression`, for all of them. Adam divides what a first moment loses
        in codes by the root of the second, and can diverge: name only "params" in
        `periods` then, or give Adam a larger `eps`.
      nonnegative: fields that are clipped at 0 after a mean in codes.
      algorithm: see `relaxjax.all_reduce`.
      bucket_bytes: see `relaxjax.all_reduce`.
      seed: the seed of random compressors.

    Returns:
      A gradient transformation whose `update` needs `params`. Updates come out in
      float32 where a param is narrower. `update` takes `weight=`: what this worker
      counts for in a mean of this step; with zero it is absent, and goes on from its
      own. Fields keep their dtypes; their means are taken in float32.

    Raises:
      ValueError: `periods` without "params", with a number below 1; what
        `relaxjax.all_reduce` refuses; in `init`: no state of `inner` has such a field,
        or it holds no floats; in `update` another tree than `init` saw, or no `params`.
      NameError: `update` outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp, optax, relaxjax
      >>> periods = {"params": 2, "trace": 3}
      >>> tx = relaxjax.desynced(optax.sgd(1.0, 0.5), "data", periods=periods)
      >>> def train(gradient):
      ...     x = jnp.float32(0)
      ...     state = tx.init(x)
      ...     for _ in range(2):
      ...         updates, state = tx.update(gradient, state, x)
      ...         x = optax.apply_updates(x, updates)
      ...     return x, optax.tree.get(state, "trace")
      >>> x, trace = jax.vmap(train, axis_name="data")(jnp.array([1.0, 3.0]))
      >>> print(x, trace)
      [-5. -5.] [1.5 4.5]
    """
    require_transformation("desynced", "inner", inner)
    _check(periods)
    tx = optax.with_extra_args_support(inner)
    exchange = ExchangeSpec(
        _CALLER, axis_name, compressor, algorithm, bucket_bytes, None, seed
    )

    def means_of(own: Any, params: Any) -> dict[str, _Mean]:
        coded, names = compressor is not None, periods
        if not isinstance(names, Mapping):
            names = [_PARAMS, *fields_of_floats(own, params)]
        return {
            name: _Mean(exchange.reducer(), coded, name in nonnegative)
            for name in sorted(names)
        }

    def times_of(names: Collection[str]) -> Together:
        if isinstance(periods, Mapping):
            return together(_CALLER, periods)
        return together(_CALLER, dict.fromkeys(names, periods))

    def init(params: optax.Params) -> Any:
        own = tx.init(params)
        means = means_of(own, params)
        fields = named_fields(own, means.keys() - {_PARAMS}, params)
        if jax.tree.leaves(params):  # else an empty part of `optax.partition`
            for name, leaves in fields.items():
                require_field(_CALLER, name, leaves, own)
        named = {_PARAMS: params, **fields}
        averaged = tuple(mean.init(named[name]) for name, mean in means.items())
        times = times_of(named)
        meets_too(times.alike())
        return DesyncedState(
            times.start(), own, averaged, LocalState(layout_of(params))
        )

    def update(updates, state, params=None, *, weight=None, **extra_args) -> Any:
        exchange.require(state, updates, params, None)
        if weight is not None:  # counts in the optimizer too, as in an `optax.chain`
            extra_args["weight"] = weight
        with optimizer_in_it():
            u, own = tx.update(updates, state.inner, params, **extra_args)
        x, u, means = widened(params), widened(u), means_of(own, params)
        fields = named_fields(own, means.keys() - {_PARAMS}, params)
        named = {_PARAMS: optax.tree.add(x, u), **fields}
        averaged, times = [], times_of(means)
        for (name, mean), before in zip(means.items(), state.averaged, strict=True):
            last = here = times.due(state.step, name)
            if weight is not None:  # absent where it is zero
                here &= ~is_absent(weight)
            new, after = mean.update(widened(named[name]), before, last, weight)
            averaged.append(after)
            if name == _PARAMS:
                u = optax.tree.where(here, optax.tree.sub(new, x), u)
            else:
                new = optax.tree.cast_like(new, named[name])
                named[name] = optax.tree.where(here, new, named[name])
        named.pop(_PARAMS)
        own, step = with_fields(own, named), times.after(state.step)
        return u, DesyncedState(step, own, tuple(averaged), state.leaves)

    return marked(_CALLER, "models", axis_name, init, update, inner)


class _Mean(NamedTuple):
    """The mean of a field over the workers, once a period; silent in between."""

    reducer: optax.GradientTransformationExtraArgs
    coded: bool
    clipped: bool  # at 0, when coded

    def init(self, values: Any) -> AveragedState:
        anchor = wide_copy(values)
        return AveragedState(anchor if self.coded else (), self.reducer.init(anchor))

    def update(self, x: Any, state: AveragedState, due: Any, weight: Any) -> Any:
        """The mean of x where it is due, else x, and the next state."""
        meet = functools.partial(self._meet, weight=weight)
        return when(due, meet, (x, state))

    def _meet(self, before: tuple[Any, AveragedState], weight: Any) -> Any:
        x, state = before
        sent = optax.tree.sub(state.anchor, x) if self.coded else x
        mean, reducer = self.reducer.update(sent, state.reducer, weight=weight)
        if not self.coded:
            return mean, state._replace(reducer=reducer)
        anchor = optax.tree.sub(state.anchor, mean)
        if self.clipped:
            anchor = jax.tree.map(lambda v: jnp.maximum(v, 0), anchor)
        return anchor, state._replace(anchor=anchor, reducer=reducer)


def _check(periods: Mapping[str, Period] | Period) -> None:
    if not isinstance(periods, Mapping):
        calendar(_CALLER, "periods", periods)
        return
    together(_CALLER, periods)
    if _PARAMS not in periods:
        raise ValueError(
            f"{_CALLER}: periods={dict(periods)!r} has no 'params': models that are "
            "never averaged would not train together; give them a number of steps"
        )

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
from collections.abc import Collection, Iterator, Mapping
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
            names = [_PARAMS, *_fields_of_floats(own, params)]
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
        fields = _fields(own, means, params)
        if jax.tree.leaves(params):  # else an empty part of `optax.partition`
            for name, leaves in fields.items():
                _check_field(name, leaves, own)
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
        named = {_PARAMS: optax.tree.add(x, u), **_fields(own, means, params)}
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
        own, step = _with_fields(own, named), times.after(state.step)
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


def _fields_of_floats(state: Any, params: Any) -> list[str]:
    """Names of the innermost fields of optimizers all of whose arrays are floats."""
    kinds: dict[str, list[bool]] = {}
    for fields, _, leaf in _in_fields(state, params):
        if fields:
            is_float = jnp.issubdtype(leaf.dtype, jnp.inexact)
            kinds.setdefault(fields[-1], []).append(is_float)
    return sorted(name for name, floats in kinds.items() if all(floats))


def _fields(state: Any, names: Collection[str], params: Any) -> dict[str, Any]:
    """The arrays of each named field, by their paths; the outermost name counts."""
    found: dict[str, dict[str, Any]] = {n: {} for n in names if n != _PARAMS}
    for fields, place, leaf in _in_fields(state, params):
        name = next((name for name in fields if name in found), None)
        if name is not None:
            found[name][place] = leaf
    return found


def _in_fields(state: Any, params: Any) -> Iterator[tuple[list[str], str, Any]]:
    """The optimizer's fields around each array of its state; the path; the array.

    Fields inside the params, such as those of an Equinox module, are left out.
    """
    ends = {_keys(path) for path, _ in jax.tree.leaves_with_path(params)}
    for path, leaf in jax.tree.leaves_with_path(state):
        keys = _keys(path)
        names = [getattr(k, "name", None) for k in keys]
        ways = [i for i in range(len(keys)) if keys[i:] in ends and any(names[:i])]
        fields = [x for x in names[: min(ways, default=None)] if x is not None]
        yield fields, _place(path), leaf


def _with_fields(state: Any, fields: dict[str, dict[str, Any]]) -> Any:
    """The state with these arrays."""
    new = {path: leaf for leaves in fields.values() for path, leaf in leaves.items()}
    return jax.tree.map_with_path(lambda path, leaf: new.get(_place(path), leaf), state)


def _place(path: Any) -> str:
    return jax.tree_util.keystr(_keys(path))


def _keys(path: Any) -> tuple[Any, ...]:
    """The path of a leaf, also where flax.nnx has wrapped the arrays of a state."""
    wrapper = jax.tree_util.GetAttrKey("value")
    return tuple(key for key in path if key != wrapper)


def _check_field(name: str, leaves: dict[str, Any], state: Any) -> None:
    if not leaves:
        paths = [path for path, _ in jax.tree.leaves_with_path(state)]
        keys = {k for path in paths for k in path}
        names = {k.name for k in keys if isinstance(k, jax.tree_util.GetAttrKey)}
        raise ValueError(
            f"{_CALLER}: periods has {name!r}, which is not a field of a state of "
            f"inner; its fields are {', '.join(sorted(names)) or 'none'}"
        )
    for path, leaf in leaves.items():
        if not jnp.issubdtype(leaf.dtype, jnp.inexact):
            raise ValueError(
                f"{_CALLER}: periods has {name!r}, and {path} is {leaf.dtype}: only "
                "floats have a mean; leave it out, and it stays each worker's own"
            )


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

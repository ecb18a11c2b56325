"""Marks in a traced update: which relaxation made what, and on which side.

Each relaxation traces its update in a scope of its name, its side and its axes, which
costs nothing at run time. `relaxjax._core.traced._flows` finds it again. Sides:

    gradients   a reducer, before the optimizer
    momenta     a reducer with a momentum in it, in place of the optimizer's
    tracking    before the optimizer, beside gossip after it
    models      after the optimizer: updates end at a mean and must stay as they are
    optimizer   all in one
"""

import re
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import optax
from jax.extend import core

from relaxjax._core._arrays import require_arrays, require_dtypes
from relaxjax._core._axis import AxisName, axes_of
from relaxjax._core.layouts._unreduced import opens_own_mapping, refuse_unreduced
from relaxjax._core.traced import _asked

_SCOPE = re.compile(r"relaxjax\.(\w+)/(\w+)/([\w,]+)/(\d+)")
REDUCERS = frozenset(["gradients", "momenta"])
FIRST = frozenset(["momenta", "optimizer"])  # no optimizer stands before these
_OPTIMIZER = "relaxjax-optimizer"
_FAILURES = AttributeError, TypeError, ValueError, LookupError
_NAMED = re.compile(r"namedtuple\[(\w+)\]")
_MERGE = re.compile(r"relaxjax-merge\.(\w+)")


class Station(NamedTuple):
    """A relaxation in a traced update; two of one name have different numbers."""

    name: str
    side: str
    axes: tuple[str, ...]
    number: int


class Given(NamedTuple):
    """What an outermost relaxation's update is given and makes, and in which trace."""

    at: Station
    value: Any
    updates: Any
    state: Any
    params: Any
    made: tuple[Any, Any]  # updates, state
    trace: Any


def marked(
    name: str,
    side: str,
    axis_name: AxisName,
    init: Callable[..., Any],
    update: Callable[..., Any],
    inside: optax.GradientTransformation | None = None,
) -> optax.GradientTransformationExtraArgs:
    """The transformation, whose update is traced in a scope that `station_of` reads.

    Where it is `passed_over`, the optimizer inside it is left of it, if there is one.
    """
    axes = ",".join(axes_of(axis_name))

    def checked(params: optax.Params) -> Any:
        require_arrays(params, name)
        within = _asked.STARTED.get()  # of another one, for models
        with _asked.setting(_asked.STARTED, True):
            if side in REDUCERS and not within:
                params = differentiated(params)
            state = init(params)
        require_dtypes(params, name, None)
        return state

    def named(updates, state, params=None, **extra_args) -> Any:
        numbers = _asked.NUMBERS.get()
        number = 0 if numbers is None else next(numbers)
        if side in ("tracking", "models"):
            refuse_unreduced(name, updates)
        scope = jax.named_scope(f"relaxjax.{name}/{side}/{axes}/{number}")
        with (
            scope,
            _asked.setting(_asked.HEARD, None),
        ):  # nobody hears what is inside
            made = update(updates, state, params, **extra_args)
        if (hear := _asked.HEARD.get()) is not None:
            at = Station(name, side, axes_of(axis_name), number)
            value, here = extra_args.get("value"), core.get_opaque_trace_state()
            hear(Given(at, value, updates, state, params, made, here))
        return made

    if side in REDUCERS | FIRST:
        checked, named = opens_own_mapping(name, axis_name, checked, named)
    left = optax.with_extra_args_support(inside or optax.identity())

    def first(params: optax.Params) -> Any:
        return (left.init if _asked.PASSED_OVER.get() else checked)(params)

    def after(updates, state, params=None, **extra_args) -> Any:
        step = left.update if _asked.PASSED_OVER.get() else named
        return step(updates, state, params, **extra_args)

    return of_own_state(name, first, after)


def of_own_state(
    name: str, init: Callable[..., Any], update: Callable[..., Any]
) -> optax.GradientTransformationExtraArgs:
    """The transformation; where its `update` fails on another's state, it says so.

    A state is known by its class and the named tuples in it. Only an update that fails
    is looked at, so that others cost nothing and a state may grow in newer versions.

    Raises:
      TypeError: in `update`, which failed, and `init` makes a state of other kinds.
    """

    def told(updates, state, params=None, **extra_args) -> Any:
        try:
            return update(updates, state, params, **extra_args)
        except _FAILURES as error:
            got = needed = _kinds(state)
            tree = updates if params is None else params
            with suppress(Exception):  # else the update's error is the reason
                needed = _kinds(jax.eval_shape(partial(init), tree))  # traced anew
            if got == needed:
                raise
            raise TypeError(
                f"{name}: update got a state of {got}, which is another "
                f"transformation's, and needs its own, of {needed}: the state that "
                "tx.init or relaxjax.init makes, or a checkpoint restored into it"
            ) from error

    return optax.GradientTransformationExtraArgs(init, told)


def whole_method(
    name: str, *parts: optax.GradientTransformation
) -> optax.GradientTransformationExtraArgs:
    """A method of models: the optimizer of each worker, and what stands around it."""
    both = optax.with_extra_args_support(optax.chain(*parts))

    def update(updates, state, params=None, **extra_args) -> Any:
        refuse_unreduced(name, updates)
        return both.update(updates, state, params, **extra_args)

    return of_own_state(name, both.init, update)


def _kinds(state: Any) -> str:
    inside = _NAMED.findall(str(jax.tree.structure(state)))
    return ", ".join(dict.fromkeys([type(state).__name__, *inside]))


def optimizer_in_it() -> AbstractContextManager[Any]:
    """The scope in which a relaxation calls an optimizer that the user gave it."""
    return jax.named_scope(_OPTIMIZER)


def merging_by(rule: str) -> Any:
    """A scope, for a function that merges by a rule, which `merge_of` reads."""
    return jax.named_scope(f"relaxjax-merge.{rule}")


def merge_of(scope: str) -> str | None:
    """The rule by which contributions are merged in a scope."""
    found = _MERGE.search(scope)
    return found and found.group(1)


def doer_of(scope: str) -> Station | None:
    """The relaxation that does it; None in an optimizer that a relaxation calls."""
    return station_of(scope.rpartition(_OPTIMIZER)[2])


@lru_cache
def station_of(scope: str) -> Station | None:
    """The outermost relaxation of a scope."""
    if (found := _SCOPE.search(scope)) is None:
        return None
    name, side, axes, number = found.groups()
    return Station(name, side, tuple(axes.split(",")), int(number))


def differentiated(params: Any) -> Any:
    """The part of params that gradients are taken of: `fast` of `LookaheadParams`."""

    def part(x: Any) -> Any:
        return x.fast if _has_two(x) else x

    return jax.tree.map(part, params, is_leaf=_has_two)


def _has_two(x: Any) -> bool:
    return isinstance(x, optax.LookaheadParams)

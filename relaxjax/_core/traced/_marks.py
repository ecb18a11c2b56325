"""Marks in a traced update: which relaxation made what, and on which side.

Each relaxation traces its update in a scope of its name, its side and its axes, which
costs nothing at run time. `relaxjax._core.traced._flows` finds it again. Sides:

    gradients   a reducer, before the optimizer
    momenta     a reducer with a momentum in it, in place of the optimizer's
    tracking    before the optimizer, beside gossip after it
    models      after the optimizer: updates end at a mean and must stay as they are
    optimizer   all in one
"""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeVar

import jax
import optax
from jax.extend import core

from relaxjax._core._arrays import require_arrays, require_dtypes
from relaxjax._core._axis import AxisName, axes_of
from relaxjax._core.layouts._unreduced import opens_own_mapping, refuse_unreduced
from relaxjax._core.traced import _asked

T = TypeVar("T")
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
        with _with(_asked.STARTED, True):
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
        with scope, _with(_asked.HEARD, None):  # nobody is told of what is inside
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


@contextmanager
def _with(variable: ContextVar[Any], value: T) -> Iterator[T]:
    """In it, the variable has this value."""
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)


def passed_over() -> AbstractContextManager[bool]:
    """In it, relaxations are left out of what is traced."""
    return _with(_asked.PASSED_OVER, True)


def heard_updates(hear: Callable[[Given], Any]) -> AbstractContextManager[Any]:
    """In it, the function is told what updates of relaxations are given.

    It must not keep the tracers of another trace than its own, which ends before.
    """
    return _with(_asked.HEARD, hear)


def remark(text: str) -> None:
    """Says, once, of a choice that is allowed and rarely meant, if somebody asks."""
    said = _asked.SAID.get()
    if said is not None and text not in said:
        said.append(text)


def remarks() -> AbstractContextManager[list[str]]:
    """In it, `relaxjax.init` or `relaxjax.explain` asks, to warn of it."""
    return _with(_asked.SAID, [])


def meets_too(periods: Mapping[str, int]) -> None:
    """Says with what models meet, as fields of an optimizer's state, if somebody asks.

    `periods` are by the fields' names; "params" are the models.
    """
    meets = _asked.MEETS.get()
    if meets is not None:
        meets.update(periods)


def meeting_too() -> AbstractContextManager[dict[str, int]]:
    """In it, the periods that relaxations state by `meets_too`."""
    return _with(_asked.MEETS, {})


def numbered() -> AbstractContextManager[Iterator[int]]:
    """In it, every relaxation that is traced has a number of its own."""
    return _with(_asked.NUMBERS, itertools.count())


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

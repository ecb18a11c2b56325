"""What is asked of relaxations while they are traced, and where answers go.

Closures of a transformation read these through the module. A closure that is sent to
another process, as by cloudpickle, can take no context variable with it.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")

NUMBERS: ContextVar[Iterator[int] | None] = ContextVar("numbers", default=None)
HEARD: ContextVar[Callable[[Any], Any] | None] = ContextVar("heard", default=None)
PASSED_OVER: ContextVar[bool] = ContextVar("passed over", default=False)
MEETS: ContextVar[dict[str, int] | None] = ContextVar("meets", default=None)
STARTED: ContextVar[bool] = ContextVar("started", default=False)
SAID: ContextVar[list[str] | None] = ContextVar("remarks", default=None)


@contextmanager
def setting(variable: ContextVar[Any], value: T) -> Iterator[T]:
    """In it, the variable has this value."""
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)


def passed_over() -> AbstractContextManager[bool]:
    """In it, relaxations are left out of what is traced."""
    return setting(PASSED_OVER, True)


def heard_updates(hear: Callable[[Any], Any]) -> AbstractContextManager[Any]:
    """In it, the function is told what updates of relaxations are `Given`.

    It must not keep the tracers of another trace than its own, which ends before.
    """
    return setting(HEARD, hear)


def remark(text: str) -> None:
    """Says, once, of a choice that is allowed and rarely meant, if somebody asks."""
    said = SAID.get()
    if said is not None and text not in said:
        said.append(text)


def remarks() -> AbstractContextManager[list[str]]:
    """In it, `relaxjax.init` or `relaxjax.explain` asks, to warn of it."""
    return setting(SAID, [])


def meets_too(periods: Mapping[str, int]) -> None:
    """Says with what models meet, as fields of an optimizer's state, if somebody asks.

    `periods` are by the fields' names; "params" are the models.
    """
    meets = MEETS.get()
    if meets is not None:
        meets.update(periods)


def meeting_too() -> AbstractContextManager[dict[str, int]]:
    """In it, the periods that relaxations state by `meets_too`."""
    return setting(MEETS, {})


def numbered() -> AbstractContextManager[Iterator[int]]:
    """In it, every relaxation that is traced has a number of its own."""
    return setting(NUMBERS, itertools.count())

"""What is asked of relaxations while they are traced, and where answers go.

Closures of a transformation read these through the module. A closure that is sent to
another process, as by cloudpickle, can take no context variable with it.
"""

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

NUMBERS: ContextVar[Iterator[int] | None] = ContextVar("numbers", default=None)
HEARD: ContextVar[Callable[[Any], Any] | None] = ContextVar("heard", default=None)
PASSED_OVER: ContextVar[bool] = ContextVar("passed over", default=False)
MEETS: ContextVar[dict[str, int] | None] = ContextVar("meets", default=None)
STARTED: ContextVar[bool] = ContextVar("started", default=False)
SAID: ContextVar[list[str] | None] = ContextVar("remarks", default=None)

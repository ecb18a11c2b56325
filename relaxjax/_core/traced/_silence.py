"""Steps in which nothing is due, by a program that does not ask.

Whether an exchange is due is a value on the device. On a GPU the host fetches it in
each step, to know whether a loop has a turn (`relaxjax._core._cond.when`), and so
cannot run ahead of the device: a small step takes almost twice as long (docs/gpu.md).
But a relaxation with a period can say for how long nothing will be due:

    left = every - 2 - (steps since the last exchange)        (0 where that is less)

`due` announces it where the step is traced; the program returns it, the host fetches it
once a period, and takes a program without the exchange for as many steps. So nothing
depends on what the host believes: `left` comes from the counters themselves, and holds
if a step leaves them as they were (skipped, say): thus 2, and not 1. Where k counters
announce in a step, or one k times, each may stand for the same steps: left / k.

What announces inside of another trace (a `jax.jit`, `lax.scan` or `lax.cond` in the
step) has a value that cannot be returned; then the host asks in each step, as before.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from relaxjax._core._checks import is_traced

_HEARD: ContextVar["Heard | None"] = ContextVar("heard", default=None)


class Heard:
    """What is announced while a step is traced; in a `silent` one nothing is due."""

    def __init__(self, silent: bool) -> None:
        self.silent = silent
        self._trace = core.get_opaque_trace_state()
        self._left: list[jax.Array] = []
        self._counters: list[jax.Array] = []
        self._is_lost = False

    def is_here(self) -> bool:
        """Whether the step itself is traced, and no function inside of it."""
        return core.get_opaque_trace_state() == self._trace

    def announce(self, counter: jax.Array, left: jax.Array) -> None:
        """Adds a number of steps; counters are told apart by identity."""
        self._is_lost |= not self.is_here()
        self._left.append(left)
        if not any(counter is other for other in self._counters):
            self._counters.append(counter)

    def left(self) -> jax.Array | None:
        """In how many steps to come nothing is due; None if that is not known."""
        if self._is_lost or not self._left:
            return None
        return jnp.min(jnp.stack(self._left)) // len(self._counters)


@contextmanager
def hearing(*, silent: bool) -> Iterator[Heard]:
    """Collects what is announced in it."""
    heard = Heard(silent)
    token = _HEARD.set(heard)
    try:
        yield heard
    finally:
        _HEARD.reset(token)


def due(
    counter: jax.Array, every: int, *, since: jax.Array | None = None
) -> bool | jax.Array:
    """Whether an exchange is due in this step; False of Python in a silent program.

    Args:
      counter: int32 of the state, by which an update adds at most one.
      every: the period.
      since: steps since the last exchange; None is the counter modulo the period.
    """
    since = counter % every if since is None else since
    if every > 2 and _is_silent(counter, every - 2, since):  # else no step is sure
        return False
    return since >= every - 1


def due_at(counter: jax.Array, at: jax.Array) -> bool | jax.Array:
    """Whether an exchange is due in this step; False of Python in a silent program.

    Args:
      counter: int32 of the state, the number of steps before this one; an update adds
        at most one.
      at: its value after the step of the next exchange, or less.
    """
    return False if _is_silent(counter, at - 2, counter) else counter + 1 >= at


def _is_silent(counter: jax.Array, last: int | jax.Array, since: jax.Array) -> bool:
    """Whether nothing is due; else announces the steps from `since` to the last one."""
    heard = _HEARD.get()
    if heard is None:
        return False
    if heard.silent and heard.is_here():
        return True
    heard.announce(counter, jnp.maximum(last - since, 0))
    return False


class Silence:
    """Knows on the host in which steps nothing is due.

    It holds for the very counters that the last step returned, and for no others, and
    in the phase that was announced: the next one may be due at other steps.
    """

    def __init__(self) -> None:
        self._places: dict[Any, list[int]] = {}  # of what may be counters, by structure
        self._returned: list[Any] = []
        self._left: Any = 0
        self._phase = jax.tree.structure(())  # of the state that a step was given

    def holds(self, state: Any) -> bool:
        """Whether nothing is due in a step of this state. May wait for the last one."""
        before, (self._phase, counters) = self._phase, self._counters(state)
        if self._phase != before or len(counters) != len(self._returned):
            return False
        if any(a is not b for a, b in zip(counters, self._returned, strict=True)):
            return False
        if isinstance(self._left, jax.Array):  # equal on all workers
            self._left = int(np.ravel(self._left.addressable_shards[0].data)[0])
        return self._left > 0

    def returned(self, state: Any, left: jax.Array | None, *, silent: bool) -> None:
        """Remembers what a step returned; a silent one is one step less."""
        known = 0 if left is None or is_traced(left) else left
        self._left = self._left - 1 if silent else known
        _, self._returned = self._counters(state)

    def _counters(self, state: Any) -> tuple[Any, list[Any]]:
        """The state's structure, and its whole numbers, one for each worker."""
        leaves, structure = jax.tree.flatten(state)
        if structure not in self._places:
            self._places[structure] = [
                i
                for i, x in enumerate(leaves)
                if jnp.ndim(x) == 1 and jnp.issubdtype(jnp.result_type(x), jnp.integer)
            ]
        return structure, [leaves[i] for i in self._places[structure]]

"""Pages that compiling has used and freed, given back to the system.

XLA compiles by many small allocations, and some stay. glibc keeps the free pages
between them, and large arrays come on top. `malloc_trim` gives these pages back, once
for a program. Other allocators are left alone.

Cost: milliseconds, once for a compilation of seconds.
"""

import ctypes
from contextlib import suppress
from typing import Any

import jax

MANY = 2**23
"""Bytes of state, at least: of smaller models nobody asks for memory."""


def give_back(state: Any) -> None:
    """Gives free pages back after a program of a large state was compiled."""
    if sum(getattr(x, "nbytes", 0) for x in jax.tree.leaves(state)) >= MANY:
        with suppress(AttributeError, OSError, TypeError):  # not of glibc
            ctypes.CDLL(None).malloc_trim(0)

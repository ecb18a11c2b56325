"""Large pages for what JAX computes on CPU: an environment for processes to be started.

XLA on CPU takes the temporaries of a program anew for each run of it, as one block. A
block of more than 32 MiB glibc gets from the kernel and gives back after the run, so
each of its pages of 4 KiB costs a fault when it is first touched: 16 000 in a step of
0.16 s, a seventh of which they take (docs/network.md). Pages of 2 MiB leave 250.

    GLIBC_TUNABLES=glibc.malloc.hugetlb=1        malloc asks for them, by madvise

glibc reads it when a process starts, so that a process cannot do this for itself.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

TUNABLES = "GLIBC_TUNABLES"
_FIRST = 2, 35  # the first glibc that knows the setting
_KERNEL = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def huge_pages(environment: Mapping[str, str]) -> dict[str, str]:
    """What to add to the environment of a process that computes on CPU.

    Args:
      environment: the variables that it gets anyway.

    Returns:
      The setting; nothing where it would have no effect (another C library or an older
      one, a kernel that does not wait to be asked) or the user has settings of glibc.
    """
    if TUNABLES in environment or _glibc() < _FIRST or not _kernel_waits():
        return {}
    return {TUNABLES: "glibc.malloc.hugetlb=1"}


def _glibc() -> tuple[int, ...]:
    """The version, (0,) for another library."""
    with suppress(AttributeError, OSError, ValueError):
        name, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").split()
        if name == "glibc":
            return tuple(int(x) for x in version.split(".")[:2])
    return (0,)


def _kernel_waits() -> bool:
    """Whether the kernel gives large pages to those who ask."""
    with suppress(OSError):
        return "[madvise]" in _KERNEL.read_text()
    return False

"""JAX's switches for debugging, which are for a user's program and not for ours."""

from collections.abc import Iterator
from contextlib import contextmanager

import jax


@contextmanager
def unswitched() -> Iterator[None]:
    """For what looks at a program or its state, or places it; a decorator too.

    There, transfers between host and devices are what was asked for, a NaN is to be
    named, and a program that is traced is the one that runs without the switches.
    """
    with (
        jax.transfer_guard("allow"),
        jax.debug_nans(False),
        jax.debug_infs(False),
        jax.disable_jit(False),
    ):
        yield

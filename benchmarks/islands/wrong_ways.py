"""How an island of the chaos benchmark is wrong: another way in each of its processes.

    diverges    its learning rate is 1000 times too large
    NaN         its params are not finite after its first 5 s
    tokens      it says that it has taken in 1000 times as many

The way follows from the incarnation, so that a process that is run again from the log
does what it did. Each ends by itself after 30 s, with a status other than 0, and the
next one begins.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

SECONDS, SOUND = 30, 5  # of a process, and of its first params


class Way(NamedTuple):
    """How a process is wrong.

    Attributes:
      rate: what its learning rate is multiplied by.
      tokens: what the tokens that it reports are multiplied by.
      params: what it makes of its params, after the first `SOUND` seconds.
    """

    rate: float = 1.0
    tokens: float = 1.0
    params: Callable[[Any], Any] = lambda params: params


def _not_finite(params: Any) -> Any:
    return jax.tree.map(lambda x: x * jnp.nan, params)


WAYS = {
    "diverges": Way(rate=1000.0),
    "NaN": Way(params=_not_finite),
    "tokens": Way(tokens=1000.0),
}


def way_of(incarnation: int) -> str:
    """The name of a process's way."""
    return list(WAYS)[(incarnation - 1) % len(WAYS)]

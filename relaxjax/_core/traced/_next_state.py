"""States that come back as gradients: the cotangent of a state is the next state.

JAX adds up the cotangents of what is used several times. So a loss may use such a state
once: two uses are refused where they are traced, and a sum in a loop is seen in the
program of the step, by the name that next states carry in it.
"""

import itertools
import weakref
from typing import Any

import jax
from jax.ad_checkpoint import checkpoint_name
from jax.core import Tracer

from relaxjax._core._tree import leaf_names

NEXT = "relaxjax-next-state"
"""The name of next states in a traced program."""
_TAKEN: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_BY: dict[int, int] = {}  # of those the numbers of the calls
CALLS = itertools.count()
"""Numbers of calls: the backward pass of one may be traced several times."""


def named_next(state: Any) -> Any:
    """The next state, by its name; in a compiled program it is nothing."""
    return jax.tree.map(lambda x: checkpoint_name(x, NEXT), state)


def differentiated(state: Any) -> list[Any]:
    """The leaves whose gradient is being taken, as far as can be told."""
    kinds = ("JVPTracer", "LinearizeTracer")
    return [x for x in jax.tree.leaves(state) if type(x).__name__ in kinds]


def refuse_twice(caller: str, state: Any, call: int) -> None:
    """Refuses a state that another call in the same trace has taken already."""
    for name, leaf in zip(leaf_names(state), jax.tree.leaves(state), strict=True):
        if not isinstance(leaf, Tracer):
            continue
        if _TAKEN.get(id(leaf)) is leaf and _BY[id(leaf)] != call:
            raise ValueError(
                f"{caller}: state= (leaf {name!r}) is used twice in one loss, as with "
                "weights that are shared. Each use would add the whole residual, and "
                "the two new states would be added up. Wrap the params once, and use "
                "what comes out in both places; or give each use a state of its own"
            )
        _TAKEN[id(leaf)], _BY[id(leaf)] = leaf, call

"""One merge on host arrays, by the very rule of `relaxjax.decoupled_diloco`.

    D_m = a - x_m,  w_m = c_m^2 / s_m,  a <- a + O(merge of D_m by w_m)

or by a rule of `relaxjax.merges`, which takes those of weight 0 for absent.

Contributors stand in sorted order along an emulated axis, which is filled up to a power
of two, and to 4 at least, with workers of weight 0: a merge that has to wait for its
compilation keeps everybody waiting, and one program does for all of them. The same
arrays give the same bits on the same processor and version of XLA: what is merged again
from kept contributions has the same digest.

Cost: one pass over the contributions; nothing is sent. It runs on the CPU.
"""

import functools
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from relaxjax.islands.common._agreed import Settings
from relaxjax.islands.common._bounds import Part
from relaxjax.islands.common._codes import on_the_cpu
from relaxjax.islands.common._files import Arrays
from relaxjax.local_updates import AnchorState, ExchangeSpec, outer_step, weight_of

_AXIS = "islands"


class Merged(NamedTuple):
    """A fragment after a merge.

    Attributes:
      anchor: a, in float32 where a param is narrower.
      outer: the leaves of the outer optimizer's state.
      weights: w of each contribution.
    """

    anchor: Arrays
    outer: Arrays
    weights: list[float]


def first_outer(settings: Settings, anchor: Arrays) -> Arrays:
    """The outer optimizer's state before the first merge."""
    with on_the_cpu(), _in_bits_of(anchor):
        return _named(jax.tree.leaves(settings.outer().init(_placed(anchor))))


def merge(
    settings: Settings, anchor: Arrays, outer: Arrays, parts: Sequence[Part]
) -> Merged:
    """Merges contributions, of which there is at least one, into a fragment."""
    n = 1 << max(2, (len(parts) - 1).bit_length())
    spare = n - len(parts)
    models = {
        name: np.stack([p.model[name].astype(a.dtype) for p in parts] + [a] * spare)
        for name, a in anchor.items()
    }
    tokens = np.array([p.tokens for p in parts] + [0] * spare, np.float32)
    steps = np.array([p.steps for p in parts] + [0] * spare, np.float32)
    leaves = [outer[name] for name in sorted(outer)]
    with on_the_cpu(), _in_bits_of(anchor):
        after, leaves, weights = _program(settings)(
            *map(_placed, (anchor, leaves, models, tokens, steps))
        )
    weights = [float(w) for w in weights[: len(parts)]]
    after = {name: np.asarray(after[name]) for name in anchor}
    return Merged(after, _named(leaves), weights)


@functools.cache
def _program(settings: Settings) -> Any:
    """The compiled merge, for any shapes."""
    exchange = ExchangeSpec("islands", _AXIS, merge=settings.merge)
    step = outer_step(exchange, settings.outer())

    def run(anchor, outer, models, tokens, steps) -> Any:
        empty = step.init(anchor)
        outer = jax.tree.unflatten(jax.tree.structure(empty.outer), outer)
        weights = weight_of(tokens, steps)

        def one(model, weight) -> AnchorState:
            gradient = jax.tree.map(lambda a, x: a - x, anchor, model)
            memory = AnchorState(anchor, outer, empty.reducer)
            return step.update(gradient, memory, weight)

        after = jax.vmap(one, axis_name=_AXIS)(models, weights)
        after = jax.tree.map(lambda x: x[0], after)
        return after.anchor, jax.tree.leaves(after.outer), weights

    return jax.jit(run)


def _in_bits_of(anchor: Arrays) -> Any:
    """In 64 bits if a param is; a thread has not the context of the one beside it."""
    doubles = any(x.dtype == np.float64 for x in anchor.values())
    return jax.enable_x64(True) if doubles else nullcontext()


def _placed(tree: Any) -> Any:
    return jax.tree.map(jnp.asarray, tree)


def _named(leaves: Any) -> Arrays:
    """Host arrays by their numbers, in words that sort like them."""
    return {f"{i:03d}": np.asarray(x) for i, x in enumerate(leaves)}

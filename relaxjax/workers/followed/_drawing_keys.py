"""Keys in an optimizer's state: by where their numbers meet, or do not.

    before workers meet   a key of each worker's own: their mean has less noise
    after it, or never    the same key on all, as the models would part otherwise

The numbers that a key draws are followed through the traced update. Those that go into
a relaxation, or a collective, along an axis are drawn before it; those that come out in
the updates and have not met along it are drawn after. A key that does both is refused.
A relaxation's own key goes into it as a key, and stays as the relaxation made it.

What holds of one worker's key is `relaxjax.worker_key` of the key that `tx.init` makes,
over the axes along which its numbers meet.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import optax

from relaxjax._core._tree import is_key, key_path
from relaxjax._core._worker_key import worker_key
from relaxjax.workers.followed._dependence import NOBODYS, Dependence, Own

Folds = dict[int, tuple[str, ...]]
"""The axes along which a key is a worker's own, by the place of a leaf of the state."""


class Keys(NamedTuple):
    """The keys of a state.

    Attributes:
      own: those that are a worker's own.
      torn: names of those that draw both before and after workers meet.
    """

    own: Folds
    torn: list[str]


def keys_of(program: Any, state: Any, leaves: int, axes: Sequence[str]) -> Keys:
    """On which side of the relaxations each key of an update's state draws.

    Args:
      program: the closed jaxpr (gradients, state, ...) -> (updates, state).
      state: shapes and dtypes of a worker's state.
      leaves: the number of leaves of the gradients.
      axes: the workers' axes.
    """
    flat, _ = jax.tree.flatten_with_path(state)
    places = {i: path for i, (path, x) in enumerate(flat) if is_key(x)}
    if not places:
        return Keys({}, [])
    ins: list[Own] = [NOBODYS] * len(program.jaxpr.invars)
    for i in places:
        ins[leaves + i] = frozenset((str(i), axis) for axis in axes)
    walk = Dependence(axes)
    walk.ends = frozenset(["is_finite"])  # a vote is no number
    outs = walk.steps(program, ins, range(leaves, leaves + len(flat)))
    both = walk.entered & NOBODYS.union(*outs[:leaves])
    paths = [places[int(place)] for place, _ in both]
    met = {i: tuple(a for a in axes if (str(i), a) in walk.entered) for i in places}
    return Keys(
        {i: along for i, along in met.items() if along},
        sorted({key_path(path) for path in paths}),
    )


def with_own_keys(
    tx: optax.GradientTransformation, own: Folds
) -> optax.GradientTransformation:
    """The transformation, whose `init`, inside the axes, makes keys of a worker."""

    def init(params: optax.Params) -> optax.OptState:
        flat, tree = jax.tree.flatten(tx.init(params))
        keys = [worker_key(x, own[i]) if i in own else x for i, x in enumerate(flat)]
        return jax.tree.unflatten(tree, keys)

    return tx._replace(init=init) if own else tx

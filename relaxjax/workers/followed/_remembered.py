"""Optimizers that remember where they want to be, which undo a meeting of models.

Most optimizers say how far to go from the params that they are given. Some hold the
place itself in their state, and answer

    update = (a z + ..) - params

where z was equal to the params at the start: schedule-free methods, MADGRAD, COCOB.
After a mean of the params alone, the next update leads each worker back to what it
remembers. Who only scales the way from there to the params, as Mechanize, does not.

Both halves are read from the programs of `init` and `update`, in which relaxations are
left out: a state leaf that is a param, and an update in which the param stands as it
is, subtracted, beside that leaf times anything. SAM does so at some of its steps alone,
which undoes those meetings that lie between (`relaxjax._core.traced._turns`).

Cost: one more trace of `init` and `update`, and only where models meet.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from relaxjax._core._jaxprs import walked
from relaxjax._core._tree import leaf_names
from relaxjax._core.traced._asked import passed_over
from relaxjax._core.traced._extra_args import FAILURES, ExtraArgs, with_extra_args
from relaxjax._core.traced._sums import (
    NOTHING,
    SumWalk,
    Terms,
    mirrors_of,
    one_term,
    terms_of,
)
from relaxjax._core.traced._turns import choices_of, numbers_of, undone


class Memory(NamedTuple):
    """What an optimizer remembers of params.

    Attributes:
      leaves: names of its leaves to which updates lead, and whether steps change them.
      fields: names of the fields beside them that steps change, of floats alone.
      by_turns: whether updates lead there at some steps alone.
    """

    leaves: dict[str, bool]
    fields: list[str]
    by_turns: bool = False


def remembered(
    trace: Callable[..., Any],
    tx: optax.GradientTransformation,
    params: Any,
    given: Mapping[str, Any] | None,
) -> Memory:
    """What the optimizer in a transformation remembers; nothing where unsure.

    `trace` is `jax.make_jaxpr`, in the axes of the workers; `params` are shapes.
    """
    try:
        with passed_over():
            own = _programs(trace, tx, params, given)
        mirrors, count = mirrors_of(own.init.jaxpr), len(jax.tree.leaves(params))
        if len(own.update.out_avals) != count + len(mirrors):
            return Memory({}, [])  # it leaves out what is masked
        outs = _sums(own.update.jaxpr, mirrors, count)
        found = _led_to(outs, mirrors)
        by_turns = not found and _go_ways(outs, mirrors)
        if by_turns:
            all_in_it = _programs(trace, tx, params, given)
            found = _undone(own, all_in_it, mirrors, count)
    except FAILURES:
        return Memory({}, [])
    program = own.update.jaxpr
    held = program.invars[count : count + len(mirrors)]
    changed = [a is not b for a, b in zip(held, program.outvars[count:], strict=True)]
    paths, names = jax.tree.leaves_with_path(params), leaf_names(own.state)
    inside = {i: len(paths[j][0]) for i in found if (j := mirrors[i]) is not None}
    fields = _fields(own.state, inside, changed)
    return Memory({names[i]: changed[i] for i in found}, fields, by_turns)


class _Programs(NamedTuple):
    """Closed jaxprs of `init` and `update`, and the shapes of the state."""

    init: Any
    update: Any
    state: Any


def _programs(
    trace: Callable[..., Any],
    tx: optax.GradientTransformation,
    params: Any,
    given: Mapping[str, Any] | None,
) -> _Programs:
    started, state = trace(tx.init, return_shape=True)(params)

    def look(extra: ExtraArgs) -> Any:
        return trace(extra.update_of(tx))(params, state, params, extra.arrays)

    return _Programs(started, with_extra_args(look, params, given), state)


def _led_to(outs: Sequence[Terms], mirrors: Sequence[int | None]) -> list[int]:
    """Mirrors to which the updates of their params lead."""
    return [
        i
        for i, j in enumerate(mirrors)
        if j is not None
        and (("param", j), -1) in outs[j].whole
        and ("leaf", i) in terms_of(outs[j])
        and ("way", i) not in outs[j].scaled
    ]


def _go_ways(outs: Sequence[Terms], mirrors: Sequence[int | None]) -> bool:
    """Whether updates go a way to a mirror that something scales, perhaps by 0."""
    pairs = [(i, j) for i, j in enumerate(mirrors) if j is not None]
    return any(("way", i) in outs[j].scaled for i, j in pairs)


def _undone(
    own: _Programs, all_in_it: _Programs, mirrors: Sequence[int | None], count: int
) -> list[int]:
    """Mirrors to which updates lead back over a meeting of the models."""
    turns = choices_of(own.update, numbers_of(own.init), count)
    meeting = choices_of(all_in_it.update, numbers_of(all_in_it.init), count).meeting
    sums = [_sums(own.update.jaxpr, mirrors, count, row) for row in turns.rows]
    back = [_led_to(outs, mirrors) for outs in sums]

    def is_undone(i: int, j: int) -> bool:
        now = one_term("param", j)
        taken = np.array([outs[count + i] == now for outs in sums])
        returns = np.array([i in leaves for leaves in back])
        return undone(meeting, taken[turns.at], returns[turns.at])

    return [i for i, j in enumerate(mirrors) if j is not None and is_undone(i, j)]


def _sums(
    program: Any,
    mirrors: Sequence[int | None],
    count: int,
    chosen: Mapping[str, float] | None = None,
) -> list[Terms]:
    """What the results of an update are sums of."""
    rest = len(program.invars) - 2 * count - len(mirrors)
    leaves = [
        NOTHING if j is None else one_term("leaf", i) for i, j in enumerate(mirrors)
    ]
    whole = [one_term("param", j) for j in range(count)]
    ins = [*[NOTHING] * count, *leaves, *whole, *[NOTHING] * rest]
    return walked(program, ins, NOTHING, SumWalk(mirrors, chosen))


def _fields(
    state: Any, inside: Mapping[int, int], changed: Sequence[bool]
) -> list[str]:
    """Fields of floats beside these leaves, of which the step changes some.

    `inside` has, by the number of a leaf, the length of its path within its field.
    """
    at = jax.tree.leaves_with_path(state)
    homes = {at[i][0][: len(at[i][0]) - depth - 1] for i, depth in inside.items()}
    fields: dict[str, list[tuple[bool, bool]]] = {}
    for (path, x), moves in zip(at, changed, strict=True):
        for home in homes:
            key: Any = path[len(home)] if path[: len(home)] == home else None
            if isinstance(key, jax.tree_util.GetAttrKey):
                is_float = jnp.issubdtype(x.dtype, jnp.floating)
                fields.setdefault(key.name, []).append((is_float, moves))
    return sorted(
        name
        for name, leaves in fields.items()
        if all(is_float for is_float, _ in leaves) and any(m for _, m in leaves)
    )

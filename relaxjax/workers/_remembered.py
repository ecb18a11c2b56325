"""Optimizers that remember where they want to be, which undo a meeting of models.

Most optimizers say how far to go from the params that they are given. Some hold the
place itself in their state, and answer

    update = (a z + ..) - params

where z was equal to the params at the start: schedule-free methods, MADGRAD, COCOB.
After a mean of the params alone, the next update leads each worker back to what it
remembers. Who only scales the way from there to the params, as Mechanize, does not.

Both halves are read from the programs of `init` and `update`, in which relaxations are
left out: a state leaf that is a param, and an update in which the param stands as it
is, subtracted, beside that leaf times anything. SAM, which does so between its own
steps alone, is not seen: there `sync_every` is to be a multiple of its `sync_period`.

Cost: one more trace of `init` and `update`, and only where models meet.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from relaxjax._core._jaxprs import walked
from relaxjax._core._tree import leaf_names
from relaxjax._core.traced._extra_args import FAILURES, ExtraArgs, with_extra_args
from relaxjax._core.traced._marks import passed_over
from relaxjax._core.traced._sums import (
    NOTHING,
    SumWalk,
    mirrors_of,
    one_term,
    terms_of,
)


class Memory(NamedTuple):
    """What an optimizer remembers of params.

    Attributes:
      leaves: names of its leaves to which updates lead.
      fields: names of the fields beside them that steps change, of floats alone.
    """

    leaves: list[str]
    fields: list[str]


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
            started, state = trace(tx.init, return_shape=True)(params)

            def look(extra: ExtraArgs) -> Any:
                return trace(extra.update_of(tx))(params, state, params, extra.arrays)

            program = with_extra_args(look, params, given).jaxpr
    except FAILURES:
        return Memory([], [])
    mirrors, count = mirrors_of(started.jaxpr), len(jax.tree.leaves(params))
    if len(program.outvars) != count + len(mirrors):  # it leaves out what is masked
        return Memory([], [])
    found = _led_to(program, mirrors, count)
    held = program.invars[count : count + len(mirrors)]
    changed = [a is not b for a, b in zip(held, program.outvars[count:], strict=True)]
    paths, names = jax.tree.leaves_with_path(params), leaf_names(state)
    inside = {i: len(paths[j][0]) for i in found if (j := mirrors[i]) is not None}
    return Memory([names[i] for i in found], _fields(state, inside, changed))


def _led_to(program: Any, mirrors: Sequence[int | None], count: int) -> list[int]:
    """Mirrors to which the updates of their params lead."""
    rest = len(program.invars) - 2 * count - len(mirrors)
    leaves = [
        NOTHING if j is None else one_term("leaf", i) for i, j in enumerate(mirrors)
    ]
    whole = [one_term("param", j) for j in range(count)]
    ins = [*[NOTHING] * count, *leaves, *whole, *[NOTHING] * rest]
    outs = walked(program, ins, NOTHING, SumWalk(mirrors))
    return [
        i
        for i, j in enumerate(mirrors)
        if j is not None
        and (("param", j), -1) in outs[j].whole
        and ("leaf", i) in terms_of(outs[j])
        and ("way", i) not in outs[j].scaled
    ]


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

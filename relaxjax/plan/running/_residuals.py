"""What the residuals of a state hold, and where it goes under another relaxation.

    before the optimizer     gradients g_i        into a residual of the new state
    behind it                updates u_i          x_i + e_i
    where models meet        a - x_i              x_i - e_i

Cost: additions; nothing is sent here.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax

from relaxjax._core._owed import Debt, debts
from relaxjax._core._tree import leaf_names, widened

Sums = Mapping[str, Any]
"""Amounts [n, ...] by the name of the param that they are owed to."""


class Held(NamedTuple):
    """What a state owes: of gradients, and of how params are to move."""

    gradients: Sums
    moves: Sums


def held(caller: str, params: Any, opt_state: Any, optimizer: Any) -> Held:
    """The sums of what a state owes.

    `optimizer` is the structure of the optimizer's state; ValueError where it does not
    say on which side of it a residual is, or a residual is of no param.
    """
    found = _whole(caller, debts(opt_state, optimizer), params)
    sides = [x for x in found if not x.by_models]
    if optimizer.num_leaves == 0:
        _require_sides(caller, opt_state, optimizer, sides)
    gradients = [(x.leaf, x.array) for x in sides if not x.behind]
    moves = [(x.leaf, x.array) for x in sides if x.behind]
    moves += [(x.leaf, -x.array) for x in found if x.by_models]
    return Held(_sums(gradients), _sums(moves))


def moved(params: Any, moves: Sums) -> Any:
    """The params, those that move as wide as float32 at least."""
    names, (leaves, form) = leaf_names(params), jax.tree.flatten(params)
    pairs = zip(names, leaves, strict=True)
    wide = [widened(x) if name in moves else x for name, x in pairs]
    return _plus(form.unflatten(wide), moves)


def put(caller: str, state: Any, gradients: Sums, optimizer: Any) -> Any:
    """A new state that owes these too; ValueError where it has no place for one."""
    places: dict[str, str] = {}
    for x in debts(state, optimizer):
        fits = x.leaf in gradients and x.array.shape == gradients[x.leaf].shape
        if fits and not x.by_models and not x.behind:
            places.setdefault(x.leaf, x.place)
    for name in gradients:
        if name not in places:
            raise ValueError(
                f"{caller}: residuals of the transformation until here hold gradients "
                f"of {name!r} that were not delivered, and tx has no place for them: "
                "give plan.with_arrears(tx), which adds them to the next gradient"
            )
    return _plus(state, {place: gradients[leaf] for leaf, place in places.items()})


def parts(state: Any, form: Any) -> list[Any]:
    """The parts of a state that have the form of the optimizer's own."""

    def alike(x: Any) -> bool:
        return jax.tree.structure(x) == form

    return [x for x in jax.tree.leaves(state, is_leaf=alike) if alike(x)]


def _whole(caller: str, found: list[Debt], params: Any) -> list[Debt]:
    """Those that are amounts: where nothing is lost, some states keep a scalar."""
    shapes = dict(
        zip(leaf_names(params), (x.shape for x in jax.tree.leaves(params)), strict=True)
    )
    for x in found:
        if x.array.ndim > 1 and x.array.shape != shapes.get(x.leaf):
            raise ValueError(
                f"{caller}: {x.place!r} of opt_state holds a residual of shape "
                f"{list(x.array.shape)}, of no param by its name and shape, so that it "
                "would be lost: take over from a transformation that sees the params "
                "as they are"
            )
    return [x for x in found if x.array.shape == shapes.get(x.leaf)]


def _require_sides(caller: str, state: Any, optimizer: Any, found: list[Debt]) -> None:
    """ValueError where a residual is between two that may be the optimizer's state."""
    count = len(parts(state, optimizer))
    for debt in found:
        if 0 < debt.behind < count:
            raise ValueError(
                f"{caller}: the optimizer keeps no state, and {count} parts of "
                f"opt_state look like it, so that {debt.place!r} may hold gradients or "
                "updates: take an optimizer with a state, such as optax.sgd with a "
                "momentum"
            )


def _sums(pairs: list[tuple[str, Any]]) -> Sums:
    sums: dict[str, Any] = {}
    for name, x in pairs:
        sums[name] = x if name not in sums else _added([sums[name]], [x])[0]
    return sums


def _plus(tree: Any, amounts: Sums) -> Any:
    """The tree with amounts added to the leaves of these names."""
    names, (leaves, form) = leaf_names(tree), jax.tree.flatten(tree)
    at = [names.index(name) for name in amounts]
    new = _added([leaves[i] for i in at], [*amounts.values()])
    for i, leaf in zip(at, new, strict=True):
        leaves[i] = leaf
    return form.unflatten(leaves)


def _added(xs: list[Any], ys: list[Any]) -> list[Any]:
    """`x + y` in the dtype of `x`, lying as it does."""
    lie = [getattr(x, "sharding", None) for x in xs]
    return jax.jit(_sum, out_shardings=lie)(xs, ys)


def _sum(xs: list[Any], ys: list[Any]) -> list[Any]:
    return [(x + y).astype(x.dtype) for x, y in zip(xs, ys, strict=True)]

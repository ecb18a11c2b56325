"""What a state owes: amounts that came in with updates and have not come out yet.

A mark stands in the annotation of a field, beside its merge rule:

    residual: Annotated[Any, MEAN, OWED]          a tree like the params
    waiting: Annotated[tuple, MEAN, OWED_IN_TURN] several, the first comes out first
    reducer: Annotated[Any, OWED_BY_MODELS]       what is owed in there is of a - x

Law of a field that is marked, with amounts e_i of the workers:

    sum of updates that came out + mean_i of e_i = sum of the means that came in

So an amount may also be put there, and comes out later. Fields of which this does not
hold, such as momenta and copies of neighbors, have no mark.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax

from relaxjax._core._merge_rules import marks_of
from relaxjax._core._tree import key_path


class Owed(NamedTuple):
    """How a field owes.

    Attributes:
      in_turn: whether it holds several trees like the params; else it is one.
      by_models: whether it holds states that take in a - x, by which models meet.
    """

    in_turn: bool = False
    by_models: bool = False


OWED = Owed()
OWED_IN_TURN = Owed(in_turn=True)
OWED_BY_MODELS = Owed(by_models=True)


class Debt(NamedTuple):
    """An array of a state that is owed.

    Attributes:
      place: its name in the state.
      leaf: name of the param that it is owed to.
      array: the amounts.
      by_models: whether they are of a - x, and not of updates.
      behind: number of the optimizer's states that come before it in the state.
    """

    place: str
    leaf: str
    array: Any
    by_models: bool
    behind: int


def debts(state: Any, optimizer: Any) -> list[Debt]:
    """The arrays in a state that are owed, in order.

    `optimizer` is the structure of the state of an optimizer that is in it.
    """
    return list(_walk(state, "", optimizer, by_models=False, behind=[]))


def _walk(
    node: Any, name: str, optimizer: Any, *, by_models: bool, behind: list[str]
) -> Iterator[Debt]:
    """In the order of the leaves; `behind` collects the optimizer's states."""
    if jax.tree.structure(node) == optimizer:
        behind.append(name)
        return
    marks = marks_of(type(node), Owed)
    for path, child in jax.tree.leaves_with_path(node, is_leaf=lambda x: x is not node):
        field = key_path(path)
        mark = marks.get(field)
        inner = f"{name}/{field}" if name else field
        if mark is None or mark.by_models:
            if not jax.tree_util.all_leaves([child]):
                models = by_models or mark is not None
                yield from _walk(
                    child, inner, optimizer, by_models=models, behind=behind
                )
            continue
        for at, array in jax.tree.leaves_with_path(child):
            leaf = key_path(at)
            place = f"{inner}/{leaf}" if at else inner
            if mark.in_turn:
                _, _, leaf = leaf.partition("/")
            yield Debt(place, leaf, array, by_models, len(behind))

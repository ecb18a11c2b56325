"""What a walked step has asked of its counters, and for how long it will be so.

A step's counters move by steady amounts, and what it does depends on them by few
questions: which of two numbers is larger, what is left of one by another. So

    a comparison that its numbers move away from    answers for good as now
    one whose numbers meet in k steps               answers as now for k - 1 steps
    v mod m, v div m                                likewise, up to the next multiple

Two steps whose questions stand alike are followed by alike steps: a period is over when
a step stands as an earlier one did. While nothing is about to change, steps are alike,
and need not be walked.
"""

import operator
from typing import NamedTuple

import numpy as np

_COMPARED = frozenset(["eq", "ne", "lt", "le", "gt", "ge", "max", "min"])
_DIVIDED = frozenset(["rem", "div"])
# Numbers that move steadily come out of them, if such go in.
_STEADY = frozenset([
    "add", "sub", "neg", "mul", "broadcast_in_dim", "reshape", "squeeze", "copy",
    "copy_p", "optimization_barrier", "select_n", "stop_gradient",
])  # fmt: skip
_WRAPS = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}
"""Those whose integers of less than 32 bits wrap around within a run."""
FAR = 1 << 30
"""Steps that nobody waits for, such as those until a counter of 32 bits is full."""


class Question(NamedTuple):
    """What one equation has asked.

    Attributes:
      name: its primitive's.
      numbers: those that went in.
    """

    name: str
    numbers: tuple[float, ...]


Asked = dict[tuple[int, int], Question]
"""By the equation, and the number of its turn in the step."""


def asks(name: str, made: np.dtype) -> bool:
    """Whether a primitive's result, of this dtype, may change other than steadily."""
    if name == "convert_element_type":
        return made.itemsize < 4
    return name not in _STEADY or (name in _WRAPS and _is_narrow(made))


def question(name: str, numbers: tuple[float, ...], made: np.dtype) -> Question:
    """What a primitive asks of numbers to make this dtype; each as one of those above.

    A sign, and a conversion to bool, compare with 0; a narrow integer wraps around.
    """
    if name in _WRAPS and len(numbers) == 2:
        return _wrapped(_WRAPS[name](*numbers), made)
    if len(numbers) != 1 or name not in ("sign", "convert_element_type"):
        return Question(name, numbers)
    if name == "sign" or made == np.dtype(bool):
        return Question("ne", (*numbers, 0))
    if not np.issubdtype(made, np.integer):
        return Question(name, numbers)
    return _wrapped(numbers[0], made)


def _wrapped(number: float, made: np.dtype) -> Question:
    span = np.iinfo(made)
    return Question("rem", (number - span.min, span.max - span.min + 1))


def _is_narrow(made: np.dtype) -> bool:
    return made.itemsize < 4 and np.issubdtype(made, np.integer)


def stands(now: Asked, before: Asked) -> dict[tuple[int, int], tuple[object, ...]]:
    """How the questions stand, of which each equation's `before` is its last one."""
    return {place: _stand(asked, before.get(place)) for place, asked in now.items()}


def _stand(now: Question, before: Question | None) -> tuple[object, ...]:
    name, numbers = now
    if len(numbers) != 2:
        return now
    if name in _DIVIDED and numbers[1] >= FAR > numbers[0] >= 0:
        return name, numbers[1]
    if name in _DIVIDED and numbers[1] > 0:
        return name, numbers[0] % numbers[1], numbers[1]
    if name in _COMPARED:
        gap = numbers[0] - numbers[1]
        moved = gap - (before.numbers[0] - before.numbers[1]) if before else 0
        if gap * moved > 0 or abs(gap) >= FAR:
            return name, "for good", gap > 0
        return name, gap
    return now


def steps_alike(third: Asked, second: Asked, first: Asked) -> int:
    """For how many steps after three in a row, the last one first, all stands so."""
    if not third.keys() == second.keys() == first.keys():
        return 0
    return min((_alike(third[k], second[k], first[k]) for k in third), default=FAR)


def _alike(third: Question, second: Question, first: Question) -> int:
    if not len(third.numbers) == len(second.numbers) == len(first.numbers):
        return 0
    moves = [x - y for x, y in zip(third.numbers, second.numbers, strict=True)]
    if moves != [y - z for y, z in zip(second.numbers, first.numbers, strict=True)]:
        return 0
    if not any(moves):
        return FAR
    if len(moves) != 2:
        return 0
    if third.name in _COMPARED:
        gap, move = third.numbers[0] - third.numbers[1], moves[0] - moves[1]
        if move == 0 or gap * move > 0:
            return FAR
        return int((abs(gap) - 1) // abs(move)) if gap else 0
    number, divisor = third.numbers
    if third.name in _DIVIDED and moves[1] == 0 < moves[0] and number >= 0 < divisor:
        return int((divisor - 1 - number % divisor) // moves[0])
    return 0

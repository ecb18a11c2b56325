"""Which computations an instruction calls, and how often a loop runs.

Cost: O(length of the instruction).
"""

import re
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter

from relaxjax.programs._hlo_module import Instruction, Module

_ATTRIBUTE = re.compile(
    r"\b(?:calls|to_apply|body|condition|true_computation|false_computation|"
    r"branch_computations|called_computations)=(\{[^{}]*\}|%?[\w.\-]+)"
)
_LEVELS, _MOST = 100, 10_000_000
_TRIPS = re.compile(r"known_trip_count\D{0,40}(\d+)")


def called_by(instruction: Instruction) -> list[str]:
    """Names of the computations that an instruction calls, in the order of the text."""
    values = _ATTRIBUTE.findall(instruction.rest)
    return [name for value in values for name in re.findall(r"[\w.\-]+", value)]


def loop_parts(instruction: Instruction) -> tuple[str, str]:
    """Names of the condition and the body of a `while`.

    Raises:
      ValueError: it lacks one.
    """
    parts = dict(re.findall(r"\b(condition|body)=%?([\w.\-]+)", instruction.rest))
    if len(parts) < 2:
        raise ValueError(f"%{instruction.name}: a while has condition= and body=")
    return parts["condition"], parts["body"]


def require_bounded(module: Module) -> None:
    """Refuses calls without end, or so many that nobody could walk them.

    Raises:
      ValueError: a computation calls itself, directly or by others; calls are more
        than 100 levels deep; or all calls written out are too many instructions.
    """
    calls = {
        name: [c for i in body for c in called_by(i) if c in module.computations]
        for name, body in module.computations.items()
    }
    try:
        inner_first = list(TopologicalSorter(calls).static_order())
    except CycleError as error:
        raise _refused(error.args[1][0], "calls itself") from error
    runs: dict[str, int] = {}  # instructions, with those of all that is called
    depth: dict[str, int] = {}
    for name in inner_first:
        inside = calls[name]
        runs[name] = len(module.computations[name]) + sum(runs[c] for c in inside)
        depth[name] = 1 + max((depth[c] for c in inside), default=0)
        if runs[name] > _MOST:
            raise _refused(name, f"runs more than {_MOST} instructions")
        if depth[name] > _LEVELS:
            raise _refused(name, f"is {_LEVELS} calls deep")


def _refused(name: str, wrong: str) -> ValueError:
    return ValueError(
        f"HLO: computation %{name} {wrong}; no compiler makes such a program"
    )


def trip_count(instruction: Instruction) -> int | None:
    """The number of turns of a `while`, if the compiler knows it."""
    match = _TRIPS.search(instruction.rest)
    return int(match[1]) if match else None


def max_trip_count(instruction: Instruction, module: Module) -> int | None:
    """The largest trip count of a `while`; None if nobody knows it.

    Of a loop whose flag its own body takes down it is 1.
    """
    known = trip_count(instruction)
    return 1 if known is None and _ends_itself(instruction, module) else known


def _ends_itself(instruction: Instruction, module: Module) -> bool:
    """Whether the condition is an element that the body makes false."""
    condition, body = map(module.instructions, loop_parts(instruction))
    flag = _behind(condition, _root(condition))
    index = re.search(r"index=(\d+)", flag.rest if flag else "")
    result = _root(body)
    if index is None or result is None or result.opcode != "tuple":
        return False
    end = _behind(body, body.get(result.operands[int(index[1])]))
    return end is not None and end.operands == ("false",)


def _root(body: Mapping[str, Instruction]) -> Instruction | None:
    return next((i for i in body.values() if i.root), None)


def _behind(
    body: Mapping[str, Instruction], instruction: Instruction | None
) -> Instruction | None:
    """What an instruction copies, or itself."""
    for _ in body:
        if not instruction or instruction.opcode not in ("copy", "bitcast"):
            break
        instruction = body.get(instruction.operands[0])
    return instruction

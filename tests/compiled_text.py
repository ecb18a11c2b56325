"""What a compiled program sends, and what waits for what in it."""

import re

import jax
import pytest

from relaxjax.programs import (
    Instruction,
    Module,
    called_by,
    groups_of,
    is_collective,
    parse,
    trip_count,
)


@pytest.fixture(autouse=True)
def as_users_compile():
    """With all optimizations: for the packages that read what a device would run."""
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


Collective = tuple[str, list[list[int]]]


def collectives(hlo: str) -> list[Collective]:
    """Kind of each collective, and the devices that exchange something in it."""
    module = parse(hlo)
    return [
        _told(instruction, module)
        for body in module.computations.values()
        for instruction in body
        if is_collective(instruction)
    ]


def by_condition(hlo: str) -> tuple[list[Collective], list[Collective]]:
    """Collectives that always run, and those of a conditional or a one-turn loop."""
    module = parse(hlo)
    assert module.entry
    found: tuple[list[Collective], list[Collective]] = [], []

    def visit(name: str, inside: bool) -> None:
        for instruction in module.computations[name]:
            if is_collective(instruction):
                found[inside].append(_told(instruction, module))
            for called in called_by(instruction):
                loop = instruction.opcode == "while" and trip_count(instruction) is None
                chosen = loop or instruction.opcode == "conditional"
                visit(called, inside or chosen)

    visit(module.entry, False)
    return found


def _told(instruction: Instruction, module: Module) -> Collective:
    return instruction.opcode, pairs_of(instruction) or groups_of(instruction, module)


def pairs_of(instruction: Instruction) -> list[list[int]]:
    """Source and target of each message of a permute."""
    found = re.search(r"source_target_pairs=\{(\S*)\}", instruction.rest)
    pairs = re.findall(r"\{(\d+),(\d+)\}", found[1]) if found else []
    return [[int(source), int(target)] for source, target in pairs]


def needs(body: list[Instruction], instruction: Instruction) -> list[Instruction]:
    """All that an instruction waits for in its computation."""
    made = {other.name: other for other in body}
    waiting, seen = [instruction], {}
    while waiting:
        for name in waiting.pop().operands:
            if name in made and name not in seen:
                seen[name] = made[name]
                waiting.append(made[name])
    return list(seen.values())

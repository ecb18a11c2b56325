"""Operations and their needs, from the text of an optimized HLO module.

After optimization element-wise chains are fused and layouts are settled, so the
operations are those that run. Each instruction of the entry computation is one; its
time is the slower of its arithmetic (products inside a fusion included) and its
memory traffic (a fusion reads its operands and writes its result). A while loop with
a known trip count is charged that many times.

Cost: O(length of the text).
"""

from collections.abc import Mapping
from typing import Any

from relaxjax.programs import Instruction, parse, shape_nbytes
from relaxjax.schedule._flops import nbytes
from relaxjax.schedule._hardware import Device
from relaxjax.schedule._hlo_cost import FREE, seconds
from relaxjax.schedule._trace import Traced, leaf_names


def read_hlo(text: str, params: Any, device: Device) -> Traced:
    """Transfers and operations of a compiled module.

    Args:
        text: the optimized module.
        params: a pytree whose leaves are the module's first parameters.
        device: what the device computes and moves per second.

    Raises:
        ValueError: no entry computation, or parameters unlike the leaves.
    """
    module = parse(text)
    if module.entry is None:
        raise ValueError(
            "text has no ENTRY computation: pass compiled.as_text() of an optimized "
            "module"
        )
    instructions = {i.name: i for i in module.computations[module.entry]}
    leaves = leaf_names(params)
    needs = _bind_parameters(instructions, leaves)
    ops = {}
    for name, instruction in instructions.items():
        if name in needs:
            continue
        before = (need for o in instruction.operands for need in needs.get(o, ()))
        needs[name] = tuple(dict.fromkeys(before))
        if instruction.opcode not in FREE:
            spent = seconds(instruction, instructions, module.computations, device)
            ops[f"%{name}"] = (spent, needs[name])
            needs[name] = (f"%{name}",)
    return Traced({n: nbytes(leaf) for n, leaf in leaves.items()}, ops, {}, 1.0)


def _bind_parameters(
    instructions: Mapping[str, Instruction], leaves: Mapping[str, Any]
) -> dict[str, tuple[str, ...]]:
    """What each parameter instruction needs: its leaf, or nothing."""
    names = list(leaves)
    needs: dict[str, tuple[str, ...]] = {}
    bound = 0
    for instruction in instructions.values():
        if instruction.opcode != "parameter":
            continue
        number = int(instruction.operands[0])
        needs[instruction.name] = (names[number],) if number < len(names) else ()
        if number < len(names):
            wanted, found = (
                nbytes(leaves[names[number]]),
                shape_nbytes(instruction.shape),
            )
            bound += wanted == found
    if bound != len(names):
        raise ValueError(
            f"the module's first {len(names)} parameters do not have the sizes of the "
            "leaves of params: compile with jax.jit(fn, keep_unused=True), params first"
        )
    return needs

"""Operations and their needs, from the text of an optimized HLO module.

After optimization element-wise chains are fused and layouts are settled, so the
operations are those that run. Each instruction of the entry computation is one; its
time is the slower of its arithmetic (products inside a fusion included) and its
memory traffic (a fusion reads its operands and writes its result). A while loop with
a known trip count is charged that many times.

Cost: O(length of the text).
"""

import math
import re
from collections.abc import Mapping
from typing import Any

from relaxjax._hlo import (
    Instruction,
    arrays,
    called_by,
    parse,
    shape_nbytes,
    trip_count,
)
from relaxjax.schedule._flops import nbytes
from relaxjax.schedule._rates import Device
from relaxjax.schedule._trace import Traced, leaf_names

_FREE = frozenset(["parameter", "constant", "tuple", "get-tuple-element", "bitcast"])


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
        if instruction.opcode not in _FREE:
            seconds = _seconds(instruction, instructions, module.computations, device)
            ops[f"%{name}"] = (seconds, needs[name])
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


def _seconds(
    instruction: Instruction,
    siblings: Mapping[str, Instruction],
    computations: Mapping[str, list[Instruction]],
    device: Device,
) -> float:
    if instruction.opcode == "while":
        bodies = [computations[name] for name in called_by(instruction)]
        return (trip_count(instruction) or 1) * sum(
            _seconds(i, {s.name: s for s in body}, computations, device)
            for body in bodies
            for i in body
            if i.opcode not in _FREE
        )
    read = sum(shape_nbytes(siblings[o].shape) for o in instruction.operands)
    return device.seconds(
        flops=_flops(instruction, siblings, computations),
        nbytes=read + shape_nbytes(instruction.shape),
    )


def _flops(
    instruction: Instruction,
    siblings: Mapping[str, Instruction],
    computations: Mapping[str, list[Instruction]],
) -> float:
    out = _size(instruction.shape)
    if instruction.opcode == "dot":
        lhs = _dimensions(siblings[instruction.operands[0]].shape)
        found = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", instruction.rest)
        contracting = found[1].split(",") if found and found[1] else []
        return 2.0 * out * math.prod(lhs[int(d)] for d in contracting)
    if instruction.opcode == "convolution":
        kernel = siblings[instruction.operands[1]].shape
        labels = re.search(r"dim_labels=\w+_(\w+)->", instruction.rest)
        channels = _dimensions(kernel)[labels[1].index("o")] if labels else 1
        return 2.0 * out * _size(kernel) / max(channels, 1)
    called = called_by(instruction)
    if instruction.opcode in ("fusion", "call") and called:
        inner = {i.name: i for i in computations[called[0]]}
        return sum(_flops(i, inner, computations) for i in inner.values())
    return 0.0 if instruction.opcode in _FREE else float(out)


def _dimensions(shape: str) -> tuple[int, ...]:
    return next((dims for dims, _ in arrays(shape)), ())


def _size(shape: str) -> int:
    return sum(math.prod(dims) for dims, _ in arrays(shape))

"""Arithmetic and memory traffic of HLO instructions, from their shapes.

    dot, custom-call to a gemm   2 * result * contracted dimensions
    convolution                  2 * result * kernel / output channels
    anything else                zero: it is bound by the memory that it moves

A fusion does what is inside it, reads its operands and writes its result; of an array
that it only slices, or writes a slice into, only the slices count. A loop with a
known trip count is charged that many times.

`read_hlo` makes a graph's operations of an optimized module, in which element-wise
chains are fused and layouts are settled: each instruction of the entry computation is
one, and its time is the slower of its arithmetic and its memory traffic.

Cost: O(length of the text).
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence

from relaxjax.programs import (
    Instruction,
    Module,
    arrays,
    called_by,
    parse,
    reading_hlo,
    shape_nbytes,
    trip_count,
)
from relaxjax.schedule.graphs._check_graph import Timed
from relaxjax.schedule.graphs._hardware import Device

_VIEWS = ["parameter", "constant", "tuple", "get-tuple-element", "bitcast"]
_ORDER = ["after-all", "opt-barrier", "partition-id", "replica-id", "fusion-done"]
FREE = frozenset(_VIEWS + _ORDER)
"""Opcodes that take no time; a fusion that begins apart pays at its beginning."""
_SLICES = frozenset(["dynamic-slice", "slice", "gather"])
_FUSIONS = ("fusion", "fusion-start")
_CALLS = (*_FUSIONS, "call", "async-start", "while", "conditional")
_LHS_DIMS = re.compile(
    r'lhs_contracting_dim(?:s=\{|ensions":\[)(?P<dims>[^\]\}]*)[\]\}]'
)


def seconds(
    instruction: Instruction,
    siblings: Mapping[str, Instruction],
    module: Module,
    device: Device,
) -> float:
    """Time of an instruction: the slower of its arithmetic and its memory traffic.

    Args:
      instruction: any instruction.
      siblings: the instructions of its computation, by name.
      module: the module, with all that the instruction calls.
      device: rates of arithmetic and memory.
    """
    if instruction.opcode in FREE:
        return 0.0
    if instruction.opcode == "while":
        return _sum_called(
            lambda i, near: seconds(i, near, module, device), instruction, module
        )
    return device.seconds(
        flops=flops(instruction, siblings, module),
        nbytes=traffic(instruction, siblings, module),
    )


def flops(
    instruction: Instruction,
    siblings: Mapping[str, Instruction],
    module: Module,
) -> float:
    """Floating-point operations of the products in an instruction."""
    if instruction.opcode in FREE:
        return 0.0
    result = math.prod(_dimensions(instruction.shape))
    if instruction.opcode == "dot" or _is_gemm(instruction):
        lhs = _dimensions(siblings[instruction.operands[0]].shape)
        match = _LHS_DIMS.search(instruction.rest)
        contracted = re.findall(r"\d+", match["dims"]) if match else []
        return 2.0 * result * math.prod(lhs[int(d)] for d in contracted)
    if instruction.opcode == "convolution":
        kernel = _dimensions(siblings[instruction.operands[1]].shape)
        labels = re.search(r"dim_labels=\w+_(\w+)->", instruction.rest)
        channels = kernel[labels[1].index("o")] if labels else 1
        return 2.0 * result * math.prod(kernel) / max(channels, 1)
    if instruction.opcode in _CALLS:
        return _sum_called(lambda i, near: flops(i, near, module), instruction, module)
    return 0.0


def _sum_called(
    cost: Callable[[Instruction, Mapping[str, Instruction]], float],
    instruction: Instruction,
    module: Module,
) -> float:
    """A cost of all that an instruction calls, as often as a loop is known to run."""
    bodies = map(module.instructions, called_by(instruction))
    times = (trip_count(instruction) or 1) if instruction.opcode == "while" else 1
    return times * sum(cost(i, body) for body in bodies for i in body.values())


def traffic(
    instruction: Instruction,
    siblings: Mapping[str, Instruction],
    module: Module,
) -> float:
    """Bytes that an instruction, which is not a loop, reads and writes."""
    operands = [siblings[o] for o in instruction.operands if o in siblings]
    if instruction.opcode in _SLICES:
        return 2.0 * shape_nbytes(instruction.shape)
    if instruction.opcode == "dynamic-update-slice":
        return 2.0 * shape_nbytes(operands[1].shape)
    called = called_by(instruction)
    if instruction.opcode in _FUSIONS and called:
        return _fused_traffic(module.computations[called[0]], operands)
    read = sum(shape_nbytes(operand.shape) for operand in operands)
    return float(read + shape_nbytes(instruction.shape))


def _fused_traffic(
    body: Sequence[Instruction], operands: Sequence[Instruction]
) -> float:
    """Bytes that a fusion reads of each operand, and writes."""
    inner = {i.name: i for i in body}

    def origin(name: str) -> str:
        for _ in inner:
            if inner[name].opcode != "bitcast":
                break
            name = inner[name].operands[0]
        return name

    read = 0
    for parameter in (i for i in body if i.opcode == "parameter"):
        whole = shape_nbytes(operands[int(parameter.operands[0])].shape)
        users = [
            i
            for i in body
            if i.opcode != "bitcast"
            and any(o in inner and origin(o) == parameter.name for o in i.operands)
        ]
        parts = [_part_read(user, parameter.name, origin) for user in users]
        sliced = bool(parts) and None not in parts
        read += min(whole, sum(filter(None, parts))) if sliced else whole
    root = next(inner[origin(i.name)] for i in body if i.root)
    results = root.operands if root.opcode == "tuple" else (root.name,)
    written = sum(_part_written(inner[origin(name)], inner) for name in results)
    return float(read + written)


def _part_read(
    user: Instruction, name: str, origin: Callable[[str], str]
) -> int | None:
    """Bytes that an instruction reads of an array that it slices; None: all."""
    first = origin(user.operands[0]) == name
    if user.opcode in _SLICES and first:
        return shape_nbytes(user.shape)
    if user.opcode == "dynamic-update-slice" and first:
        return 0
    return None


def _part_written(result: Instruction, inner: Mapping[str, Instruction]) -> int:
    if result.opcode == "dynamic-update-slice":
        return shape_nbytes(inner[result.operands[1]].shape)
    return shape_nbytes(result.shape)


def _is_gemm(instruction: Instruction) -> bool:
    target = re.search(r'custom_call_target="([^"]*)"', instruction.rest)
    return bool(target) and ("gemm" in target[1] or "matmul" in target[1])


def _dimensions(shape: str) -> tuple[int, ...]:
    return next((dims for dims, _ in arrays(shape)), ())


def read_hlo(text: str, nbytes: Mapping[str, int], device: Device) -> dict[str, Timed]:
    """Operations of a module whose first parameters have these names and bytes."""
    module = parse(text)
    if module.entry is None:
        raise ValueError(
            "text has no ENTRY computation: pass compiled.as_text() of an optimized "
            "module"
        )
    with reading_hlo("from_hlo"):
        return _operations(module, nbytes, device)


def _operations(
    module: Module, nbytes: Mapping[str, int], device: Device
) -> dict[str, Timed]:
    instructions = module.instructions(module.entry or "")
    needs = _bind_parameters(instructions, nbytes)
    ops: dict[str, Timed] = {}
    for name, instruction in instructions.items():
        if name in needs:
            continue
        before = (need for o in instruction.operands for need in needs.get(o, ()))
        needs[name] = tuple(dict.fromkeys(before))
        if instruction.opcode not in FREE:
            spent = seconds(instruction, instructions, module, device)
            ops[f"%{name}"] = (spent, needs[name])
            needs[name] = (f"%{name}",)
    return ops


def _bind_parameters(
    instructions: Mapping[str, Instruction], nbytes: Mapping[str, int]
) -> dict[str, tuple[str, ...]]:
    """What each parameter instruction needs: its leaf, or nothing."""
    names = list(nbytes)
    needs: dict[str, tuple[str, ...]] = {}
    bound = 0
    for instruction in instructions.values():
        if instruction.opcode != "parameter":
            continue
        leaf = names[int(instruction.operands[0]) :][:1]
        needs[instruction.name] = tuple(leaf)
        bound += any(nbytes[n] == shape_nbytes(instruction.shape) for n in leaf)
    if bound != len(names):
        raise ValueError(
            f"the module's first {len(names)} parameters do not have the sizes of the "
            "leaves of params: compile with jax.jit(fn, keep_unused=True), params first"
        )
    return needs

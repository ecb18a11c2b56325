"""Arithmetic and memory traffic of HLO instructions, from their shapes.

    dot, custom-call to a gemm   2 * result * contracted dimensions
    convolution                  2 * result * kernel / output channels
    anything else                none: it is bound by the memory that it moves

A fusion does what is inside it, reads its operands and writes its result; of an array
that it only takes slices from, or writes a slice into, the slices count. A loop with a
known trip count is charged that many times.

Cost: O(length of the computations called).
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence

from relaxjax.programs import Instruction, arrays, called_by, shape_nbytes, trip_count
from relaxjax.schedule._hardware import Device

Computations = Mapping[str, Sequence[Instruction]]

_VIEWS = ["parameter", "constant", "tuple", "get-tuple-element", "bitcast"]
FREE = frozenset([*_VIEWS, "after-all", "opt-barrier", "partition-id", "replica-id"])
"""Opcodes that take no time."""
_SLICES = frozenset(["dynamic-slice", "slice", "gather"])
_CALLS = ("fusion", "call", "async-start", "while", "conditional")
_LHS_DIMS = re.compile(
    r'lhs_contracting_dim(?:s=\{|ensions":\[)(?P<dims>[^\]\}]*)[\]\}]'
)


def seconds(
    instruction: Instruction,
    siblings: Mapping[str, Instruction],
    computations: Computations,
    device: Device,
) -> float:
    """Time of an instruction: the slower of its arithmetic and its memory traffic.

    Args:
        instruction: of any kind.
        siblings: the instructions of its computation, by name.
        computations: of the module.
        device: its rates.
    """
    if instruction.opcode in FREE:
        return 0.0
    if instruction.opcode == "while":
        bodies = [computations[name] for name in called_by(instruction)]
        return (trip_count(instruction) or 1) * sum(
            seconds(i, {s.name: s for s in body}, computations, device)
            for body in bodies
            for i in body
        )
    return device.seconds(
        flops=flops(instruction, siblings, computations),
        nbytes=traffic(instruction, siblings, computations),
    )


def flops(
    instruction: Instruction,
    siblings: Mapping[str, Instruction],
    computations: Computations,
) -> float:
    """Floating-point operations of the products in an instruction.

    Args:
        instruction: of any kind.
        siblings: the instructions of its computation, by name.
        computations: of the module.
    """
    if instruction.opcode in FREE:
        return 0.0
    result = math.prod(_dimensions(instruction.shape))
    if instruction.opcode == "dot" or _is_gemm(instruction):
        lhs = _dimensions(siblings[instruction.operands[0]].shape)
        found = _LHS_DIMS.search(instruction.rest)
        contracted = re.findall(r"\d+", found["dims"]) if found else []
        return 2.0 * result * math.prod(lhs[int(d)] for d in contracted)
    if instruction.opcode == "convolution":
        kernel = _dimensions(siblings[instruction.operands[1]].shape)
        labels = re.search(r"dim_labels=\w+_(\w+)->", instruction.rest)
        channels = kernel[labels[1].index("o")] if labels else 1
        return 2.0 * result * math.prod(kernel) / max(channels, 1)
    if instruction.opcode in _CALLS:
        times = (trip_count(instruction) or 1) if instruction.opcode == "while" else 1
        bodies = [computations.get(name, ()) for name in called_by(instruction)]
        return times * sum(
            flops(i, {s.name: s for s in body}, computations)
            for body in bodies
            for i in body
        )
    return 0.0


def traffic(
    instruction: Instruction,
    siblings: Mapping[str, Instruction],
    computations: Computations,
) -> float:
    """Bytes that an instruction reads and writes.

    Args:
        instruction: of any kind but a loop.
        siblings: the instructions of its computation, by name.
        computations: of the module.
    """
    operands = [siblings[o] for o in instruction.operands if o in siblings]
    if instruction.opcode in _SLICES:
        return 2.0 * shape_nbytes(instruction.shape)
    if instruction.opcode == "dynamic-update-slice":
        return 2.0 * shape_nbytes(operands[1].shape)
    called = called_by(instruction)
    if instruction.opcode == "fusion" and called:
        return _fused_traffic(computations[called[0]], operands)
    read = sum(shape_nbytes(operand.shape) for operand in operands)
    return float(read + shape_nbytes(instruction.shape))


def _fused_traffic(
    body: Sequence[Instruction], operands: Sequence[Instruction]
) -> float:
    """What a fusion reads of each operand, and writes."""
    inner = {i.name: i for i in body}

    def origin(name: str) -> str:
        while inner[name].opcode == "bitcast":
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
    """Bytes that an instruction reads of an array it slices; None: all of them."""
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
    found = re.search(r'custom_call_target="([^"]*)"', instruction.rest)
    return bool(found) and ("gemm" in found[1] or "matmul" in found[1])


def _dimensions(shape: str) -> tuple[int, ...]:
    return next((dims for dims, _ in arrays(shape)), ())

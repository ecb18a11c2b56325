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
from typing import Any, NamedTuple

from relaxjax.schedule._flops import nbytes
from relaxjax.schedule._rates import Device
from relaxjax.schedule._trace import Traced, leaf_names

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) .*\{$")
_INSTRUCTION = re.compile(
    r"^\s+(?:ROOT )?%?(?P<name>[\w.\-]+) = (?P<shape>\(.*?\)|\S+) "
    r"(?P<opcode>[\w\-]+)\((?P<operands>.*?)\)(?P<rest>(?:, .*)?)$"
)
_ARRAY = re.compile(r"([a-z]\w*)\[([\d,]*)\]")
_CALLED = re.compile(r"(?:calls|to_apply|body|condition)=%?([\w.\-]+)")
_TRIPS = re.compile(r"known_trip_count\D*(\d+)")
_FREE = frozenset(["parameter", "constant", "tuple", "get-tuple-element", "bitcast"])
_BYTES = {"pred": 1, "s4": 1, "u4": 1, "token": 0, "opaque": 0}


class Instruction(NamedTuple):
    """One line of HLO.

    Attributes:
        name: without the percent sign.
        shape: text of the result's shape.
        opcode: what it does.
        operands: names.
        rest: attributes, as text.
    """

    name: str
    shape: str
    opcode: str
    operands: tuple[str, ...]
    rest: str


def read_hlo(text: str, params: Any, device: Device) -> Traced:
    """Transfers and operations of a compiled module.

    Args:
        text: the optimized module.
        params: a pytree whose leaves are the module's first parameters.
        device: what the device computes and moves per second.

    Raises:
        ValueError: no entry computation, or parameters unlike the leaves.
    """
    computations, entry = parse_hlo(text)
    if entry is None:
        raise ValueError(
            "text has no ENTRY computation: pass compiled.as_text() of an optimized "
            "module"
        )
    instructions = {i.name: i for i in computations[entry]}
    leaves = leaf_names(params)
    needs = _bind_parameters(instructions, leaves)
    ops = {}
    for name, instruction in instructions.items():
        if name in needs:
            continue
        before = (need for o in instruction.operands for need in needs.get(o, ()))
        needs[name] = tuple(dict.fromkeys(before))
        if instruction.opcode not in _FREE:
            seconds = _seconds(instruction, instructions, computations, device)
            ops[f"%{name}"] = (seconds, needs[name])
            needs[name] = (f"%{name}",)
    return Traced({n: nbytes(leaf) for n, leaf in leaves.items()}, ops, {}, 1.0)


def parse_hlo(text: str) -> tuple[dict[str, list[Instruction]], str | None]:
    """The instructions of each computation, and the name of the entry computation.

    Args:
        text: of a module.
    """
    computations: dict[str, list[Instruction]] = {}
    current: list[Instruction] = []
    entry = None
    for line in text.splitlines():
        if header := _COMPUTATION.match(line):
            current = computations.setdefault(header[2], [])
            entry = header[2] if header[1] else entry
        elif found := _INSTRUCTION.match(re.sub(r"/\*.*?\*/", "", line)):
            operands = tuple(re.findall(r"%([\w.\-]+)", found["operands"]))
            if found["opcode"] == "parameter":
                operands = (found["operands"],)
            current.append(
                Instruction(
                    found["name"],
                    found["shape"],
                    found["opcode"],
                    operands,
                    found["rest"],
                )
            )
    return computations, entry


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
        trips = _TRIPS.search(instruction.rest)
        bodies = [computations[name] for name in _CALLED.findall(instruction.rest)]
        return (int(trips[1]) if trips else 1) * sum(
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
    called = _CALLED.findall(instruction.rest)
    if instruction.opcode in ("fusion", "call") and called:
        inner = {i.name: i for i in computations[called[0]]}
        return sum(_flops(i, inner, computations) for i in inner.values())
    return 0.0 if instruction.opcode in _FREE else float(out)


def _dimensions(shape: str) -> list[int]:
    found = _ARRAY.search(shape)
    return [int(d) for d in found[2].split(",") if d] if found else []


def _size(shape: str) -> int:
    return sum(
        math.prod(int(d) for d in dims.split(",") if d)
        for _, dims in _ARRAY.findall(shape)
    )


def shape_nbytes(shape: str) -> int:
    """Bytes of a shape, or of all shapes in a tuple.

    Args:
        shape: as HLO writes it.

    Example:
        >>> shape_nbytes("(f32[4,2]{1,0}, bf16[3])")
        38
    """
    total = 0
    for dtype, dims in _ARRAY.findall(shape):
        bits = re.search(r"\d+", dtype)
        width = _BYTES.get(dtype, int(bits[0]) // 8 if bits else 0)
        total += width * math.prod(int(d) for d in dims.split(",") if d)
    return total

"""The text of an HLO module, read into computations and instructions.

    HloModule NAME, is_scheduled=true, ..., num_partitions=8
    %NAME (PARAMETERS) -> SHAPE {
      %NAME = SHAPE OPCODE(%OPERAND, %OPERAND), ATTRIBUTE=VALUE, ...
    }

Source: XLA's "HLO text syntax", and what jaxlib 0.10 and 0.12 print.
Cost: O(length of the text).
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) .*\{$")
_INSTRUCTION = re.compile(
    r"^\s+(?P<root>ROOT )?%?(?P<name>[\w.\-]+) = (?P<shape>\(.*?\)|\S+) "
    r"(?P<opcode>[\w\-]+)\((?P<operands>.*?)\)(?P<rest>(?:, .*)?)$"
)
_ARRAY = re.compile(r"([a-z]\w*)\[([\d,]*)\](?:\{[^{}]*?E\((\d+)\)[^{}]*\})?")
_ATTRIBUTE = re.compile(
    r"\b(?:calls|to_apply|body|condition|true_computation|false_computation|"
    r"branch_computations|called_computations)=(\{[^{}]*\}|%?[\w.\-]+)"
)
_TRIPS = re.compile(r"known_trip_count\D*(\d+)")
_BITS = {"pred": 8, "token": 0, "opaque": 0}


class Instruction(NamedTuple):
    """One line of HLO.

    Attributes:
      name: its name, without the percent sign.
      shape: the text of the result's shape.
      opcode: what it does.
      operands: the names of its operands; a parameter has its number instead.
      rest: its attributes, as text.
      root: whether its result is that of the computation.
    """

    name: str
    shape: str
    opcode: str
    operands: tuple[str, ...]
    rest: str
    root: bool = False


class Module(NamedTuple):
    """A parsed module.

    Attributes:
      computations: the instructions of each computation, in the order of the text,
        which is that of execution if the module is scheduled.
      entry: the name of the entry computation, if the text has one.
      scheduled: whether the compiler settled the order of the instructions.
      replicas: the number of replicas of the program.
      partitions: the number of devices of each replica.
    """

    computations: dict[str, list[Instruction]]
    entry: str | None
    scheduled: bool
    replicas: int
    partitions: int

    @property
    def devices(self) -> int:
        """Number of devices that the program is for."""
        return self.replicas * self.partitions


def parse(text: str) -> Module:
    """Reads a module from the text that `compiled.as_text()` gives.

    Example:
      >>> module = parse('''HloModule add, is_scheduled=true
      ... ENTRY %main (x: f32[2]) -> f32[2] {
      ...   %x = f32[2]{0} parameter(0)
      ...   ROOT %y = f32[2]{0} add(%x, %x)
      ... }''')
      >>> module.computations["main"][1].operands
      ('x', 'x')
    """
    computations: dict[str, list[Instruction]] = {}
    current: list[Instruction] = []
    entry, header = None, ""
    for line in text.splitlines():
        if line.startswith("HloModule "):
            header = line
        elif match := _COMPUTATION.match(line):
            current = computations.setdefault(match[2], [])
            entry = match[2] if match[1] else entry
        elif match := _INSTRUCTION.match(re.sub(r"/\*.*?\*/", "", line)):
            root, name, shape, opcode, operands, rest = match.groups()
            operands = tuple(_operands(operands))
            current.append(Instruction(name, shape, opcode, operands, rest, bool(root)))
    replicas, partitions = (
        int(match[1]) if (match := re.search(rf"\b{key}=(\d+)", header)) else 1
        for key in ("replica_count", "num_partitions")
    )
    scheduled = "is_scheduled=true" in header
    return Module(computations, entry, scheduled, replicas, partitions)


def _operands(text: str) -> Iterator[str]:
    """Names of operands, whether or not their shapes are written before them."""
    bare = re.sub(r"\{[^{}]*\}|\[[^\[\]]*\]", "", text)
    for part in bare.replace("(", ",").replace(")", ",").split(","):
        words = part.split()
        if words and (words[-1].startswith("%") or len(words) > 1 or "%" not in text):
            yield words[-1].removeprefix("%")


def called_by(instruction: Instruction) -> list[str]:
    """Names of the computations that an instruction calls, in the order of the text."""
    values = _ATTRIBUTE.findall(instruction.rest)
    return [name for value in values for name in re.findall(r"[\w.\-]+", value)]


def loop_parts(instruction: Instruction) -> tuple[str, str]:
    """Names of the condition and the body of a `while`."""
    parts = dict(re.findall(r"\b(condition|body)=%?([\w.\-]+)", instruction.rest))
    return parts["condition"], parts["body"]


def trip_count(instruction: Instruction) -> int | None:
    """The number of turns of a `while`, if the compiler knows it."""
    match = _TRIPS.search(instruction.rest)
    return int(match[1]) if match else None


def max_trip_count(
    instruction: Instruction, computations: Mapping[str, Sequence[Instruction]]
) -> int | None:
    """The largest trip count of a `while`; None if nobody knows it.

    Of a loop whose flag its own body takes down it is 1.
    """
    known = trip_count(instruction)
    return 1 if known is None and _ends_itself(instruction, computations) else known


def _ends_itself(
    instruction: Instruction, computations: Mapping[str, Sequence[Instruction]]
) -> bool:
    """Whether the condition is an element that the body makes false."""
    condition, body = (
        {i.name: i for i in computations.get(name, ())}
        for name in loop_parts(instruction)
    )
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
    while instruction and instruction.opcode in ("copy", "bitcast"):
        instruction = body.get(instruction.operands[0])
    return instruction


def arrays(shape: str) -> list[tuple[tuple[int, ...], int]]:
    """Dimensions and bits of an element, for a shape or all shapes in a tuple.

    A layout with E(4) packs elements in 4 bits.

    Example:
      >>> arrays("(f32[4,2]{1,0}, s4[6]{0:E(4)}, pred[])")
      [((4, 2), 32), ((6,), 4), ((), 8)]
    """
    return [
        (tuple(int(d) for d in dims.split(",") if d), int(packed or _bits(dtype)))
        for dtype, dims, packed in _ARRAY.findall(shape)
    ]


def _bits(dtype: str) -> int:
    """Bits of an element in memory, where nothing packs it."""
    match = re.search(r"\d+", dtype)
    return _BITS.get(dtype, max(8, int(match[0])) if match else 0)


def shape_nbytes(shape: str) -> int:
    """Bytes of a shape, or of all shapes in a tuple.

    Example:
      >>> shape_nbytes("(f32[4,2]{1,0}, bf16[3])")
      38
    """
    return sum(-(-math.prod(dims) * bits // 8) for dims, bits in arrays(shape))

"""The text of an HLO module, read into computations and instructions.

    HloModule NAME, is_scheduled=true, ..., num_partitions=8
    %NAME (PARAMETERS) -> SHAPE {
      %NAME = SHAPE OPCODE(%OPERAND, %OPERAND), ATTRIBUTE=VALUE, ...
    }

Source: XLA's "HLO text syntax", and what jaxlib 0.10 and 0.12 print.
A text from elsewhere is held to bounds: a line is read once from left to right, no
computation calls itself, and programs have at most as many devices as there are workers
(`_core/foreign/_ranges.py`).

Cost: O(length of the text).
"""

import re
from collections.abc import Iterator

from relaxjax._core.foreign._ranges import WORKERS
from relaxjax.programs._hlo_calls import require_bounded
from relaxjax.programs._hlo_module import Instruction, Module

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) .*\{$")
_BEGINS = re.compile(r"\s+(ROOT )?%?([\w.\-]+) = (?=(\()|\S)")
_OPCODE = re.compile(r" ([\w\-]+)\(")
_DIGITS = 12  # of a number of devices


def parse(text: str) -> Module:
    """Reads a module from the text that `compiled.as_text()` gives.

    Raises:
      ValueError: a line is no instruction, a computation calls itself, or the numbers
        of the first line are out of range; the message names it.

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
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("HloModule "):
            if header:
                raise ValueError(
                    f"HLO, line {number}: a second module begins; pass the text of one"
                )
            header = line
        elif match := _COMPUTATION.match(line):
            current = computations.setdefault(match[2], [])
            entry = match[2] if match[1] else entry
        elif match := _BEGINS.match(line):
            current.append(_instruction(number, line))
    scheduled = "is_scheduled=true" in header
    replicas, partitions = _devices(header)
    module = Module(computations, entry, scheduled, replicas, partitions)
    require_bounded(module)
    return module


def _devices(header: str) -> tuple[int, int]:
    """The numbers of replicas and partitions."""
    found = []
    for key in ("replica_count", "num_partitions"):
        match = re.search(rf"\b{key}=(\d+)", header)
        text = match[1] if match else "1"
        if len(text) > _DIGITS or int(text) not in WORKERS:
            raise ValueError(
                f"HLO, first line: {key}={text:.20} must be {WORKERS.rule}"
            )
        found.append(int(text))
    replicas, partitions = found
    if replicas * partitions not in WORKERS:
        raise ValueError(
            f"HLO, first line: replica_count={replicas} times "
            f"num_partitions={partitions} must be {WORKERS.rule}"
        )
    return replicas, partitions


def _instruction(number: int, line: str) -> Instruction:
    """The instruction of a line that begins like one."""
    text = _without_comments(line)
    begins = _BEGINS.match(text)
    if begins:
        start = begins.end()
        end = _closed(text, start) if begins[3] else text.find(" ", start)
        opcode = _OPCODE.match(text, end) if end > 0 else None
        last = _closed(text, opcode.end() - 1) if opcode else -1
        rest = text[last:]
        if opcode and last > 0 and (not rest or rest.startswith(", ")):
            operands = tuple(_operands(text[opcode.end() : last - 1]))
            shape, root = text[start:end], bool(begins[1])
            return Instruction(begins[2], shape, opcode[1], operands, rest, root)
    raise ValueError(
        f"HLO, line {number}: {line.strip():.60} is not NAME = SHAPE OPCODE(OPERANDS), "
        "ATTRIBUTES: pass the text of compiled.as_text(), whole and unchanged"
    )


def _without_comments(line: str) -> str:
    """The line without /*index=5*/ and the like."""
    parts, at = [], 0
    while (begin := line.find("/*", at)) >= 0 and (
        end := line.find("*/", begin + 2)
    ) >= 0:
        parts.append(line[at:begin])
        at = end + 2
    return "".join([*parts, line[at:]])


def _closed(text: str, start: int) -> int:
    """The place behind the parenthesis that closes the one at `start`; -1: none."""
    depth = 0
    for bracket in re.compile(r"[()]").finditer(text, start):
        depth += 1 if bracket[0] == "(" else -1
        if not depth:
            return bracket.end()
    return -1


def _operands(text: str) -> Iterator[str]:
    """Names of operands, whether or not their shapes are written before them."""
    bare = re.sub(r"\{[^{}]*\}|\[[^\[\]]*\]", "", text)
    for part in bare.replace("(", ",").replace(")", ",").split(","):
        words = part.split()
        if words and (words[-1].startswith("%") or len(words) > 1 or "%" not in text):
            yield words[-1].removeprefix("%")

"""Bytes that each device sends in one run of a compiled program.

Per device, in a group of n, for each operand of d elements:

    all-reduce            2 (n - 1) ceil(d / n) (ring; XLA merges many into one with
                          several operands, each of which counts)
    all-gather            (n - 1) d
    reduce-scatter        (n - 1) ceil(d / n)
    all-to-all            (n - 1) D / n, D elements of all operands together: one
                          array, or n that go to one device each
    collective-broadcast  d, from all but the last of a chain
    collective-permute    d from each source; to oneself is free

A start counts, its done does not. A loop counts as often as it runs, its condition
once more; one that ends itself in its first turn counts as if that were taken, and a
conditional, for each device, as the branch that sends most.

Cost: O(length of the text).
"""

import math
import re
from collections.abc import Callable, Mapping

import numpy as np

from relaxjax.programs._hlo_calls import called_by, loop_parts, max_trip_count
from relaxjax.programs._hlo_groups import groups_of
from relaxjax.programs._hlo_module import Instruction, Module, arrays, reading_hlo
from relaxjax.programs._hlo_text import parse

_ELEMENTS: dict[str, Callable[[int, int], int]] = {
    "all-reduce": lambda n, d: 2 * (n - 1) * -(-d // n),
    "all-gather": lambda n, d: (n - 1) * d,
    "reduce-scatter": lambda n, d: (n - 1) * -(-d // n),
    "all-to-all": lambda n, d: (n - 1) * d // n,
    "collective-broadcast": lambda n, d: d if n > 1 else 0,
}
_KNOWN = (*_ELEMENTS, "collective-permute")
_UNKNOWN = ("ragged-all-to-all", "send", "recv")
_PAIRS = re.compile(r"source_target_pairs=\{((?:\{\d+, ?\d+\},? ?)*)\}")
_MOST = 2**60  # bytes of a loop
_ENDS = ("-done", "-update")
_HOST_MEMORY = "S(5)"  # XLA's Layout::kHostMemorySpace


def is_collective(instruction: Instruction) -> bool:
    """Whether an instruction communicates by itself: a start does, a done does not.

    Raises:
      ValueError: it communicates in a way whose bytes are not known.
    """
    opcode = instruction.opcode.removesuffix("-start")
    if opcode in _UNKNOWN:
        raise ValueError(
            f"%{instruction.name}: the bytes of {instruction.opcode!r} depend on the "
            "run, or on its other end, and are not counted"
        )
    return opcode in _KNOWN


def is_host_copy(instruction: Instruction) -> bool:
    """Whether it starts a copy between host memory and a device."""
    ends = instruction.shape.count(_HOST_MEMORY)
    return instruction.opcode == "copy-start" and ends == 1


def bytes_sent(text: str) -> np.ndarray:
    """Bytes that each device sends in one run of an HLO module.

    Args:
      text: the text of an optimized module.

    Returns:
      int64[devices], by the device's number in the program.

    Raises:
      ValueError: the module has no entry computation; a collective is not understood,
        or is in a loop whose number of turns the compiler does not know.

    Example:
      >>> text = '''HloModule pair, num_partitions=4
      ... ENTRY %main (x: f32[9]) -> f32[9] {
      ...   %x = f32[9]{0} parameter(0)
      ...   ROOT y = f32[9] collective-permute(%x), source_target_pairs={{0,1},{1,1}}
      ... }'''
      >>> print(bytes_sent(text))
      [36  0  0  0]
    """
    module = parse(text)
    if module.entry is None:
        raise ValueError(
            "the text has no ENTRY computation: pass compiled.as_text() of an "
            "optimized module"
        )
    with reading_hlo("bytes_sent"):
        return _Counter(module).computation(module.entry)


def bytes_sent_by(
    instruction: Instruction, siblings: Mapping[str, Instruction], module: Module
) -> np.ndarray:
    """Bytes that each device sends in one collective, or in the start of one.

    `siblings` are the instructions of its computation, by name.
    """
    kind = instruction.opcode.removesuffix("-start")
    operands = [a for o in instruction.operands for a in arrays(siblings[o].shape)]
    sizes = [(math.prod(dims), bits) for dims, bits in operands]
    sent = np.zeros(module.devices, np.int64)
    if kind == "collective-permute":
        for source, target in pairs_of(instruction):
            sent[source] += (source != target) * sum(_nbytes(*x) for x in sizes)
        return sent
    if kind == "all-to-all" and sizes:
        sizes = [(sum(size for size, _ in sizes), sizes[0][1])]
    for group in groups_of(instruction, module):
        senders = group[:-1] if kind == "collective-broadcast" else group
        share = _ELEMENTS[kind]
        sent[senders] += sum(_nbytes(share(len(group), d), bits) for d, bits in sizes)
    return sent


def _nbytes(size: int, bits: int) -> int:
    return -(-size * bits // 8)


def pairs_of(instruction: Instruction) -> list[tuple[int, int]]:
    """Source and target of each message of a permutation.

    Raises:
      ValueError: they are not understood.
    """
    match = _PAIRS.search(instruction.rest)
    if not match:
        raise ValueError(
            f"%{instruction.name}: source_target_pairs are missing, or not of the form "
            "{{0,1},{1,2}}"
        )
    pairs = re.findall(r"\d+", match[1])
    return [(int(a), int(b)) for a, b in zip(pairs[::2], pairs[1::2], strict=True)]


class _Counter:
    """Walks the computations of a module, each once."""

    def __init__(self, module: Module):
        self._module = module
        self._done: dict[str, np.ndarray] = {}

    def computation(self, name: str) -> np.ndarray:
        """Bytes of one run of a computation."""
        if name not in self._done:
            siblings = self._module.instructions(name)
            sent = np.zeros(self._module.devices, np.int64)
            for instruction in siblings.values():
                sent += self._instruction(instruction, siblings)
            self._done[name] = sent
        return self._done[name]

    def _instruction(
        self, instruction: Instruction, siblings: Mapping[str, Instruction]
    ) -> np.ndarray:
        nothing = np.zeros(self._module.devices, np.int64)
        if is_collective(instruction):
            return bytes_sent_by(instruction, siblings, self._module)
        if instruction.opcode.endswith(_ENDS):
            return nothing
        parts = [self.computation(name) for name in called_by(instruction)]
        if instruction.opcode == "while":
            return self._loop(instruction)
        if instruction.opcode == "conditional":
            return np.max(parts, axis=0)
        return sum(parts, nothing)

    def _loop(self, instruction: Instruction) -> np.ndarray:
        condition, body = map(self.computation, loop_parts(instruction))
        trips = max_trip_count(instruction, self._module)
        if trips is None and (condition.any() or body.any()):
            raise ValueError(
                f"a collective in the loop %{instruction.name}, whose number of turns "
                "the compiler does not know: use lax.scan, or lax.fori_loop with fixed "
                "bounds"
            )
        trips = trips or 0
        if (trips + 1) * (int(body.max()) + int(condition.max())) > _MOST:
            raise ValueError(
                f"the loop %{instruction.name} runs {trips} times, and sends more than "
                f"{_MOST} bytes: no program does"
            )
        return trips * body + (trips + 1) * condition

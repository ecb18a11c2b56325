"""What a replayed device does, one after the other.

Cost: O(instructions that run).
"""

from typing import NamedTuple, Self

from relaxjax import programs
from relaxjax.programs import Instruction, Module
from relaxjax.schedule.graphs._hardware import Device, Link
from relaxjax.schedule.replayed._replay import Machine


class Event(NamedTuple):
    """Something that a replayed device does.

    Attributes:
      kind: "work", "start" of a transfer, or "done", where it is waited for.
      name: the name of the instruction; of a done, that of its start.
      seconds: of work.
      flops: of work.
      nbytes: bytes of memory that work reads and writes, or of a transfer's operands.
      what: the transfer.
    """

    kind: str
    name: str
    seconds: float = 0.0
    flops: float = 0.0
    nbytes: int = 0
    what: Instruction | None = None


class Recorder(Machine):
    """A machine that remembers what it did."""

    def __init__(self, module: Module, device: Device, link: Link):
        super().__init__(module, device, link)
        self.events: list[Event] = []

    def _work(self, instruction: Instruction, siblings: dict[str, Instruction]) -> None:
        seconds, work = self._compute, self._flops
        super()._work(instruction, siblings)
        seconds, work = self._compute - seconds, self._flops - work
        read = [siblings[name] for name in instruction.operands if name in siblings]
        nbytes = sum(programs.shape_nbytes(i.shape) for i in [instruction, *read])
        self.events.append(Event("work", instruction.name, seconds, work, nbytes))

    def _step(self, instruction: Instruction, siblings: dict[str, Instruction]) -> None:
        if self._nbytes(instruction, siblings) is not None:
            what, near = self._transfer(instruction, siblings)
            nbytes = sum(programs.shape_nbytes(near[o].shape) for o in what.operands)
            event = Event("start", instruction.name, nbytes=nbytes, what=what)
            self.events.append(event)
        super()._step(instruction, siblings)

    def _transfer(
        self, instruction: Instruction, siblings: dict[str, Instruction]
    ) -> tuple[Instruction, dict[str, Instruction]]:
        """The transfer itself, which may be inside, and the instructions beside it."""
        if programs.is_host_copy(instruction) or programs.is_collective(instruction):
            return instruction, siblings
        inner = self._siblings[programs.called_by(instruction)[0]]
        found = next(i for i in inner.values() if self._nbytes(i, inner) is not None)
        return self._transfer(found, inner)

    def _wait(self, name: str) -> None:
        if name in self._under_way:
            begun = self._transfers[self._under_way[name]].name
            self.events.append(Event("done", begun))
        super()._wait(name)

    def _copy(self) -> Self:
        machine = super()._copy()
        machine.events = [*self.events]
        return machine

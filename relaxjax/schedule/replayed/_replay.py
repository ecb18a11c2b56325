"""How long communication holds up computation, in a program that is not run.

The instructions of a scheduled module are replayed in their order on a device with one
compute stream and one link that carries one transfer at a time:

    an instruction    takes max(flops / F, bytes / B) of the compute stream
    a start           makes its transfer ready; it begins when the link is free, and
                      takes latency + bytes sent / bandwidth
    a done            keeps the compute stream waiting until its transfer has ended
    a collective      without start and done keeps it waiting all the while
    a copy            between the device's memory and its host's is a transfer too

    exposed = seconds that the compute stream waits

Every transfer pays for itself: a small one in front of much computation does not hide a
large one. A loop runs as often as the compiler knows; of a conditional, the slowest
branch runs.

Cost: O(instructions that run).
"""

import re
from copy import copy
from typing import NamedTuple, Self

from relaxjax import programs
from relaxjax.programs import Instruction, Module
from relaxjax.schedule.graphs._hardware import ACCELERATOR, ETHERNET, Device, Link
from relaxjax.schedule.graphs._hlo_cost import FREE, flops, seconds

_MOST = 10_000_000  # instructions that run: a minute
_BACKWARD = re.compile(r'op_name="[^"]*transpose\(')


class Transfer(NamedTuple):
    """One collective of a replayed program.

    Attributes:
      name: the name of its instruction.
      nbytes: bytes that the busiest device sends.
      start: seconds at which it begins on the link.
      end: seconds at which it ends.
      waited: seconds that the compute stream waited for it.
    """

    name: str
    nbytes: int
    start: float
    end: float
    waited: float = 0.0


class Replay(NamedTuple):
    """What a replay shows about one run.

    Attributes:
      total: seconds of the whole program.
      compute: seconds during which the compute stream works.
      exposed: seconds during which it waits for a transfer.
      transfers: the transfers, in the order in which they began.
      flops: floating-point operations of the program.
      flops_under: the part of `flops` between some transfer's start and its done.
      backward_flops: operations of the backward pass (those that JAX's transposition
        made, by the names that the compiler keeps).
      backward_flops_under: the part of `backward_flops` between some transfer's start
        and its done.
    """

    total: float
    compute: float
    exposed: float
    transfers: tuple[Transfer, ...]
    flops: float
    flops_under: float
    backward_flops: float
    backward_flops_under: float

    @property
    def share(self) -> float:
        """Share of `backward_flops` that run under a transfer; 0 where that is 0."""
        return self.backward_flops_under / (self.backward_flops or 1.0)

    @property
    def forward_share(self) -> float:
        """Share of the other operations that run under a transfer, likewise."""
        forward = self.flops - self.backward_flops
        return (self.flops_under - self.backward_flops_under) / (forward or 1.0)

    @property
    def share_of_all(self) -> float:
        """Share of all operations that run under a transfer, likewise."""
        return self.flops_under / (self.flops or 1.0)


def replay(text: str, *, device: Device = ACCELERATOR, link: Link = ETHERNET) -> Replay:
    """Replays a compiled program and says how long its transfers are exposed.

    Args:
      text: the text of a scheduled module, from `compiled.as_text()`.
      device: flops and bytes per second of the compute stream.
      link: latency and bytes per second of a transfer.

    Returns:
      Seconds, transfers and flops.

    Raises:
      ValueError: the module is not scheduled or has no entry computation; a collective
        in a loop of unknown length.

    Example:
      A transfer of two seconds, with one second of computation under it:

      >>> text = '''HloModule overlap, is_scheduled=true, num_partitions=2
      ... ENTRY %main (x: f32[50]) -> f32[50] {
      ...   %x = f32[50] parameter(0)
      ...   %s = (f32[50]) collective-permute-start(%x), source_target_pairs={{0,1}}
      ...   %y = f32[50] negate(%x)
      ...   ROOT %d = f32[50] collective-permute-done(%s)
      ... }'''
      >>> run = replay(text, device=Device(bandwidth=400), link=Link(1.0, 200.0))
      >>> run.total, run.compute, run.exposed
      (2.0, 1.0, 1.0)
    """
    machine = Machine(scheduled(text, "replay"), device, link)
    with programs.reading_hlo("replay"):
        machine.run()
    return machine.result()


def scheduled(text: str, caller: str) -> Module:
    """A module whose instructions run in the order of its text.

    Raises:
      ValueError: it is another one.
    """
    module = programs.parse(text)
    if module.entry is None or not module.scheduled:
        raise ValueError(
            f"{caller}: the text must be a module with an ENTRY computation and with "
            "is_scheduled=true: pass compiled.as_text() of a compiled program"
        )
    return module


class Machine:
    """The compute stream, the link, and the transfers under way."""

    def __init__(self, module: Module, device: Device, link: Link):
        self._module, self._device, self._link = module, device, link
        self._siblings = {
            name: module.instructions(name) for name in module.computations
        }
        self.now = self._compute = self._link_free = 0.0
        self._flops = self._under = 0.0
        self._ran = 0
        self._backward = self._backward_under = 0.0
        self._transfers: list[Transfer] = []
        self._under_way: dict[str, int] = {}  # start or update -> place in transfers

    def result(self) -> Replay:
        """The totals so far."""
        return Replay(
            self.now,
            self._compute,
            sum(transfer.waited for transfer in self._transfers),
            tuple(self._transfers),
            self._flops,
            self._under,
            self._backward,
            self._backward_under,
        )

    def run(self, computation: str | None = None) -> None:
        """Replays a computation; None: the program's entry."""
        siblings = self._siblings[computation or self._module.entry or ""]
        self._ran += 1 + len(siblings)
        if self._ran > _MOST:
            raise ValueError(
                f"replay: the program runs more than {_MOST} instructions: compile one "
                "step, or a scan of fewer"
            )
        for instruction in siblings.values():
            self._step(instruction, siblings)

    def _step(self, instruction: Instruction, siblings: dict[str, Instruction]) -> None:
        opcode = instruction.opcode
        nbytes = self._nbytes(instruction, siblings)
        if nbytes is not None:
            self._send(instruction.name, nbytes)
            if not opcode.endswith("-start"):
                self._wait(instruction.name)
        elif opcode.endswith("-update") and instruction.operands[0] in self._under_way:
            place = self._under_way.pop(instruction.operands[0])
            self._under_way[instruction.name] = place
        elif opcode.endswith(("-done", "-update")):
            self._wait(instruction.operands[0])
        elif opcode in ("while", "conditional", "call") and self._communicates(
            instruction
        ):
            self._control(instruction)
        elif opcode not in FREE:
            self._work(instruction, siblings)

    def _nbytes(
        self, instruction: Instruction, siblings: dict[str, Instruction]
    ) -> int | None:
        """Bytes that a transfer, or a start around one, sends; None: not a transfer."""
        if programs.is_host_copy(instruction):
            return programs.shape_nbytes(siblings[instruction.operands[0]].shape)
        if programs.is_collective(instruction):
            return int(
                programs.bytes_sent_by(instruction, siblings, self._module).max()
            )
        starts = instruction.opcode.endswith("-start")  # async-start, call-start
        if not starts or not self._communicates(instruction):
            return None
        inner = self._siblings[programs.called_by(instruction)[0]]
        return sum(self._nbytes(i, inner) or 0 for i in inner.values())

    def _communicates(self, instruction: Instruction) -> bool:
        bodies = [
            self._siblings.get(name, {}) for name in programs.called_by(instruction)
        ]
        return any(
            programs.is_collective(i) or self._communicates(i)
            for body in bodies
            for i in body.values()
        )

    def _send(self, name: str, nbytes: int) -> None:
        start = max(self.now, self._link_free)
        self._link_free = start + (self._link.seconds(nbytes) if nbytes else 0.0)
        self._under_way[name] = len(self._transfers)
        self._transfers.append(Transfer(name, nbytes, start, self._link_free))

    def _wait(self, name: str) -> None:
        place = self._under_way.pop(name, None)
        if place is None:
            return
        transfer = self._transfers[place]
        waited = max(0.0, transfer.end - self.now)
        self._transfers[place] = transfer._replace(waited=transfer.waited + waited)
        self.now += waited

    def _work(self, instruction: Instruction, siblings: dict[str, Instruction]) -> None:
        spent = seconds(instruction, siblings, self._module, self._device)
        self.now += spent
        self._compute += spent
        work = flops(instruction, siblings, self._module)
        under = work if self._under_way else 0.0
        self._flops += work
        self._under += under
        if _BACKWARD.search(instruction.rest):
            self._backward += work
            self._backward_under += under

    def _control(self, instruction: Instruction) -> None:
        called = programs.called_by(instruction)
        if instruction.opcode == "while":
            trips = programs.max_trip_count(instruction, self._module)
            if trips is None:
                raise ValueError(
                    f"replay: a collective in the loop %{instruction.name}, whose "
                    "trip count the compiler does not know: use lax.scan, or "
                    "lax.fori_loop with fixed bounds"
                )
            condition, body = programs.loop_parts(instruction)
            for _ in range(trips):
                self.run(condition)
                self.run(body)
            self.run(condition)
            return
        branches = [self._copy() for _ in called]
        for branch, name in zip(branches, called, strict=True):
            branch.run(name)
        last = max(branches, key=lambda branch: branch.now)
        vars(self).update(vars(last))  # whatever a kind of machine remembers

    def _copy(self) -> Self:
        machine = copy(self)
        machine._transfers, machine._under_way = [*self._transfers], {**self._under_way}
        return machine

"""A compiled program as Chakra execution traces, which ASTRA-sim and others simulate.

Source: Sridharan et al. 2023, "Chakra: Advancing Performance Benchmarking and Co-design
using Standardized Execution Traces", and `et_def.proto` of mlcommons/chakra, of which
this file writes the part below; a file is its messages, each behind its length.

    GlobalMetadata   version
    Node             id, name, type, data_deps, duration_micros, attr
    AttributeProto   name, and one value: int32, int64, uint64 or bool

Of a value, the feeder of mlcommons/chakra (src/feeder/et_feeder_node.cpp of 2026-05,
version 1.0.0) takes one type for each name, and 0 if it has another: int32 for the ends
and the tag of a transfer, int64 for comm_size, comm_type and num_ops, uint64 for
tensor_size. ASTRA-sim's own (workload/feeder_v3) converts integers. Its roofline takes
num_ops / tensor_size operations a byte, and what has none takes 0 / 0 seconds: work
that moves bytes alone is written as one operation.

The instructions are those of `relaxjax.schedule.replay`, in the same order:

    computation between two transfers   one COMP_NODE: its time, operations (num_ops)
                                        and bytes of memory (tensor_size); it follows
                                        the one before, and what is waited for
    a collective                        COMM_COLL_NODE: its type, and a device's bytes
    a permutation                       COMM_SEND_NODE and COMM_RECV_NODE
    a copy from or to the host          MEM_LOAD_NODE, MEM_STORE_NODE

Cost: O(instructions that run), for each device.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from relaxjax._core.foreign._folders import local_path
from relaxjax.programs import Module, groups_of, is_host_copy, pairs_of, reading_hlo
from relaxjax.schedule.graphs._hardware import ACCELERATOR, Device, Link
from relaxjax.schedule.replayed._chakra_messages import data, number, text, varint
from relaxjax.schedule.replayed._events import Event, Recorder
from relaxjax.schedule.replayed._replay import scheduled

_HOST = "S(5)"  # XLA's host memory
VERSION = "0.0.4"
LOAD, STORE, COMP, SEND, RECV, COLLECTIVE = 2, 3, 4, 5, 6, 7  # of `NodeType`
_KINDS = {
    "all-reduce": 0,
    "all-gather": 2,
    "collective-broadcast": 5,
    "all-to-all": 6,
    "reduce-scatter": 7,
}
"""Of `CollectiveCommType`."""
_INT32, _INT64, _UINT64, _BOOL = 7, 9, 13, 27  # of `AttributeProto`
_FIELDS = {
    "comm_dst": _INT32,
    "comm_size": _INT64,
    "comm_src": _INT32,
    "comm_tag": _INT32,
    "comm_type": _INT64,
    "is_cpu_op": _BOOL,
    "num_ops": _INT64,
    "tensor_size": _UINT64,
}
"""The types as which a feeder reads attributes."""


def chakra(
    program: str, path: str | Path, *, device: Device = ACCELERATOR
) -> list[Path]:
    """Writes a compiled program as Chakra execution traces, a file for each device.

    Args:
      program: the text of a scheduled module, from `compiled.as_text()`.
      path: where to: the traces are `PATH.0.et`, `PATH.1.et` and so on.
      device: flops and bytes per second, from which come the times of computation.

    Returns:
      The files, by the number of their device in the program.

    Raises:
      ValueError: the module is not scheduled or has no entry computation; a collective
        in a loop of unknown length, or of a part of the devices, for which the format
        has no place.

    Example:
      >>> import tempfile
      >>> from relaxjax.schedule import chakra
      >>> text = '''HloModule sum, is_scheduled=true, num_partitions=2
      ... ENTRY %main (x: f32[50]) -> f32[50] {
      ...   %x = f32[50] parameter(0)
      ...   ROOT %s = f32[50] all-reduce(%x), channel_id=1, replica_groups={{0,1}}
      ... }'''
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     [path.name for path in chakra(text, f"{folder}/step")]
      ['step.0.et', 'step.1.et']
    """
    module = scheduled(program, "chakra")
    recorder = Recorder(module, device, Link())
    with reading_hlo("chakra"):
        recorder.run()
    start = local_path("chakra", "path", path)
    paths = [Path(f"{start}.{place}.et") for place in range(module.devices)]
    for place, file in enumerate(paths):
        nodes = _Nodes(place, module)
        with reading_hlo("chakra"):
            for event in recorder.events:
                nodes.take(event)
        nodes.compute()
        messages = [text(1, VERSION), *nodes.messages]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"".join(varint(len(m)) + m for m in messages))
    return paths


class _Nodes:
    """The nodes of one device; computation in a row is one."""

    def __init__(self, device: int, module: Module):
        self.messages: list[bytes] = []
        self._device, self._module = device, module
        self._before: list[int] = []  # what the next node follows
        self._under_way: dict[str, list[int]] = {}
        self._work: list[Event] = []

    def take(self, event: Event) -> None:
        """Adds what happened."""
        if event.kind == "work":
            self._work.append(event)
            return
        self.compute()
        if event.kind == "done":
            self._before = [*self._before, *self._under_way.pop(event.name, [])]
            return
        sent = _sent(event, self._device, self._module)
        self._under_way[event.name] = [
            self._add(event.name, kind, attributes) for kind, attributes in sent
        ]

    def compute(self) -> None:
        """Adds the computation since the last transfer."""
        if not self._work:
            return
        seconds = math.fsum(event.seconds for event in self._work)
        flops = math.fsum(event.flops for event in self._work)
        nbytes = sum(event.nbytes for event in self._work)
        rest = [
            number(7, round(seconds * 1e6)),
            _attribute("num_ops", max(1, round(flops))),
            _attribute("tensor_size", nbytes),
        ]
        self._before = [self._add(self._work[0].name, COMP, rest)]
        self._work.clear()

    def _add(self, name: str, kind: int, rest: Sequence[bytes]) -> int:
        place = len(self.messages) + 1
        follows = b"".join(map(varint, self._before))
        head = [number(1, place), text(2, name), number(3, kind)]
        if follows:
            head.append(data(5, follows))
        on_accelerator = _attribute("is_cpu_op", 0)
        self.messages.append(b"".join([*head, *rest, on_accelerator]))
        return place


def _sent(
    event: Event, device: int, module: Module
) -> Iterator[tuple[int, list[bytes]]]:
    """Type and attributes of the nodes that a transfer is for one device."""
    what = event.what
    assert what
    if is_host_copy(what):
        to_host = _HOST in what.shape.split("}")[0]
        yield STORE if to_host else LOAD, [_attribute("tensor_size", event.nbytes)]
    elif what.opcode.startswith("collective-permute"):
        for tag, (source, target) in enumerate(pairs_of(what)):
            ends = {"comm_src": source, "comm_dst": target, "comm_tag": tag}
            named = {"comm_size": event.nbytes, **ends}
            for end, kind in ((source, SEND), (target, RECV)):
                if end == device and source != target:
                    yield kind, _attributes(named)
    else:
        groups = groups_of(what, module)
        if groups and len(groups[0]) != module.devices:
            raise ValueError(
                f"chakra: %{what.name} is among {len(groups[0])} of {module.devices} "
                "devices, and a trace has collectives of all: trace a mesh of one axis"
            )
        kind = _KINDS[what.opcode.removesuffix("-start")]
        named = {"comm_type": kind, "comm_size": event.nbytes}
        yield COLLECTIVE, _attributes(named)


def _attributes(named: Mapping[str, int]) -> list[bytes]:
    return [_attribute(name, value) for name, value in named.items()]


def _attribute(name: str, value: int) -> bytes:
    """An `AttributeProto` of a node."""
    return data(10, text(1, name) + number(_FIELDS[name], value))

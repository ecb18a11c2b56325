"""Which devices take part in a collective together.

    replica_groups={{0,1},{2,3}}                 the groups themselves
    replica_groups=[2,4]<=[4,2]T(1,0)            2 groups of 4: numbers 0..7, laid out
                                                 as 4 x 2, transposed, cut into rows
    replica_groups=mesh['a'=2,'b'=4] {'b'}       along the named axes of a mesh, whose
      or mesh['a'=2], device_ids=([2]...) {...}  devices may be laid out likewise;
                                                 'b':(2)2 is the part of size 2 of axis
                                                 b, behind a part of size 2
    replica_groups={}                            all together

Source: XLA's printers of these three forms; the third appears from jaxlib 0.11 on.
"""

import math
import re
from itertools import pairwise

import numpy as np

from relaxjax._core.foreign._ranges import WORKERS
from relaxjax.programs._hlo_module import Instruction, Module

_GROUPS = re.compile(r"\{(?:\{[\d, ]*\},? ?)*\}|\[[^=]*<=\S*|mesh\[[^}]*\}")
_IOTA = re.compile(r"(?:<=)?\[([\d,]+)\](?:T\(([\d,]+)\))?$")
_SUB_AXIS = re.compile(r"'([^']*)'(?::\((\d+)\)(\d+))?")
_WITH_GLOBAL_IDS = ("all-reduce", "all-gather", "reduce-scatter")


def groups_of(instruction: Instruction, module: Module) -> list[list[int]]:
    """Groups of device numbers that communicate among themselves in a collective.

    Raises:
      ValueError: the form of its `replica_groups` is not understood.
    """
    _, named, text = instruction.rest.partition("replica_groups=")
    match = _GROUPS.match(text if named else "{}")
    written = match[0].rstrip(",") if match else text
    try:
        groups = _written(written if match else "")
    except (LookupError, ValueError) as error:
        raise ValueError(
            f"%{instruction.name}: replica_groups={written:.60} is not understood: "
            f"{error}"
        ) from error
    return _as_devices(groups, instruction, module)


def _written(text: str) -> list[list[int]]:
    """Groups in any of the three forms."""
    if text.startswith("mesh["):
        return _along_axes(text)
    if text.startswith("[") and text.count("<=") == 1:
        sizes, order = text.split("<=")
        return _iota(order).reshape(_numbers(sizes)).tolist()
    if not text.startswith("{"):
        raise ValueError("it has none of the forms that XLA prints")
    return [_numbers(row) for row in re.findall(r"\{([\d, ]*)\}", text[1:-1])]


def _as_devices(
    groups: list[list[int]], instruction: Instruction, module: Module
) -> list[list[int]]:
    """Groups of devices, where groups of partitions or of replicas are written.

    With a channel, partitions communicate, and without one replicas. Some collectives
    group replicas even with a channel, and mean all partitions of each.
    """
    if module.replicas > 1 and module.partitions > 1:
        raise ValueError(
            f"%{instruction.name}: programs with several replicas and several "
            f"partitions ({module.replicas} x {module.partitions}) are not understood"
        )
    if module.partitions > 1 and "channel_id=" not in instruction.rest:
        return []  # among replicas, and there is one
    of_replicas = (
        instruction.opcode.startswith(_WITH_GLOBAL_IDS)
        and "use_global_device_ids=true" not in instruction.rest
    )
    if not groups or (of_replicas and module.partitions > 1):
        return [list(range(module.devices))]
    unknown = [i for group in groups for i in group if i >= module.devices]
    if unknown:
        raise ValueError(
            f"%{instruction.name}: its groups name device {unknown[0]}, and the module "
            f"is for {module.devices}: is num_partitions missing from its first line?"
        )
    return groups


def _iota(text: str) -> np.ndarray:
    """Numbers 0, 1, ... in the order that `<=[4,2]T(1,0)` says, flat."""
    match = _IOTA.match(text.strip())
    if not match:
        raise ValueError(f"replica_groups: {text!r} is not understood")
    dims = _numbers(match[1])
    numbers = _numbered(math.prod(dims)).reshape(dims)
    return numbers.transpose(_numbers(match[2]) if match[2] else None).ravel()


def _along_axes(text: str) -> list[list[int]]:
    """`mesh['a'=2,'b'=4], device_ids=(...) {'b'}`."""
    sizes = {name: int(size) for name, size in re.findall(r"'([^']*)'=(\d+)", text)}
    ids = re.search(r"device_ids=\((.*)\) *\{", text)
    devices = _numbered(math.prod(sizes.values()))
    if ids:
        devices = _iota(ids[1]) if "[" in ids[1] else np.array(_numbers(ids[1]))
    chosen = [
        (name, int(before or 1), int(part or sizes[name]))
        for name, before, part in _SUB_AXIS.findall(text[text.rindex("{") :])
    ]
    dims: list[int] = []
    place: dict[tuple[str, int], int] = {}
    for name, size in sizes.items():  # every axis cut where chosen parts begin and end
        parts = [(low, low * width) for axis, low, width in chosen if axis == name]
        cuts = sorted({1, size, *(cut for part in parts for cut in part)})
        for low, high in pairwise(cuts):
            place[name, low] = len(dims)
            dims.append(high // low)
    axes = [place[name, low] for name, low, width in chosen if width > 1]
    others = [i for i in range(len(dims)) if i not in axes]
    width = math.prod(dims[i] for i in axes)
    return devices.reshape(dims).transpose(others + axes).reshape(-1, width).tolist()


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def _numbered(count: int) -> np.ndarray:
    """0, 1, ..., for as many devices as a program may have."""
    if count not in WORKERS:
        raise ValueError(f"{count} devices; it must be {WORKERS.rule}")
    return np.arange(count)

"""A module of HLO as plain data, and the sizes of its arrays."""

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

_ARRAY = re.compile(r"\b([a-z]\w*)\[([\d,<=]*)\](\{[^{}]*\})?")
_PACKED = re.compile(r"E\((\d+)\)")
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

    def instructions(self, computation: str) -> dict[str, Instruction]:
        """Those of a computation by name; none if the module has no such one."""
        return {i.name: i for i in self.computations.get(computation, ())}


def arrays(shape: str) -> list[tuple[tuple[int, ...], int]]:
    """Dimensions and bits of an element, for a shape or all shapes in a tuple.

    A layout with E(4) packs elements in 4 bits. A dimension up to a bound, as in
    f32[<=64], has that.

    Raises:
      ValueError: a dimension is not known, as in f32[?].

    Example:
      >>> arrays("(f32[4,2]{1,0}, s4[6]{0:E(4)}, pred[])")
      [((4, 2), 32), ((6,), 4), ((), 8)]
    """
    found = []
    parts = _ARRAY.findall(shape)
    if len(parts) < shape.count("["):
        raise ValueError(f"HLO: the shape {shape:.60} has sizes that are not numbers")
    for dtype, dims, layout in parts:
        packed = _PACKED.search(layout)
        bits = int(packed[1]) if packed else _bits(dtype)
        found.append((tuple(int(d.strip("<=")) for d in dims.split(",") if d), bits))
    return found


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


@contextmanager
def reading_hlo(caller: str) -> Iterator[None]:
    """Put around what walks a module: names are missing where a text was changed.

    Raises:
      ValueError: the body raised an error of a lookup, of arithmetic or of depth.
    """
    try:
        yield
    except (ArithmeticError, LookupError, RecursionError) as error:
        raise ValueError(
            f"{caller}: the text is no HLO module that a compiler made "
            f"({error!r:.200}): pass compiled.as_text(), whole and unchanged"
        ) from error

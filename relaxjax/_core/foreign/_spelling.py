"""The name of a relaxation, taken apart by tables of names.

    NAME[+COMPRESSOR[+FEEDBACK]][@ALGORITHM]

The tables are those of the package, or what a command line has read of them from a file
so that a mistyped name is answered before JAX is imported.

Cost: O(length of the tables).
"""

from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import NamedTuple, Protocol

GRAMMAR = "NAME[+COMPRESSOR[+FEEDBACK]][@ALGORITHM]"


class Spelled(NamedTuple):
    """The parts of a name; those that it lacks are "".

    Attributes:
      base: the relaxation.
      compressor: its compressor.
      feedback: the error feedback around it.
      algorithm: the algorithm.
    """

    base: str
    compressor: str
    feedback: str
    algorithm: str


class Row(Protocol):
    """What a relaxation's name may go on with."""

    @property
    def algorithms(self) -> Collection[str]:
        """Names of algorithms."""
        ...

    @property
    def compressors(self) -> bool:
        """Whether it takes a compressor."""
        ...


def taken_apart(
    name: str,
    rows: Mapping[str, Row],
    compressors: Collection[str],
    feedbacks: Collection[str],
) -> Spelled:
    """The parts of a name.

    Raises:
      ValueError: a part is unknown; the message begins with what is like it.
    """
    head, at, algorithm = name.partition("@")
    base, *codec = head.split("+")
    if base not in rows:
        raise _unknown(name, "relaxation", base, rows)
    row = rows[base]
    valid = compressors if row.compressors else ()
    if codec and codec[0] not in valid:
        raise _unknown(name, f"compressor of {base}", codec[0], valid)
    if len(codec) > 2:
        raise ValueError(
            f"relaxation {name!r} names {len(codec) - 1} error feedbacks "
            f"({listed(codec[1:])}); name one at most: {GRAMMAR}"
        )
    if len(codec) == 2 and codec[1] not in feedbacks:
        raise _unknown(name, "error feedback", codec[1], feedbacks)
    if at and algorithm not in row.algorithms:
        raise _unknown(name, f"algorithm of {base}", algorithm, row.algorithms)
    compressor, feedback = (*codec, "", "")[:2]
    return Spelled(base, compressor, feedback, algorithm)


def listed(names: Iterable[str]) -> str:
    """Names in a message."""
    return ", ".join(sorted(names)) or "none"


def _unknown(name: str, kind: str, value: str, valid: Iterable[str]) -> ValueError:
    near = get_close_matches(value, valid, n=3)
    meant = f" Did you mean {' or '.join(near)}?" if near else ""
    return ValueError(
        f"relaxation {name!r}: there is no {kind} {value!r}.{meant} There is "
        f"{listed(valid)}. A name is spelled {GRAMMAR}"
    )

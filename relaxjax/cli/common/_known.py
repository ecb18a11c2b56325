"""Names that commands know, as data: help, Tab and a mistyped name import no JAX.

`names.json` is made from the package's tables by scripts/names.py.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cache
from importlib import resources
from pathlib import Path
from textwrap import fill, indent
from typing import NamedTuple

from relaxjax._core.foreign._json import parsed
from relaxjax._core.foreign._spelling import GRAMMAR, taken_apart

DEFAULT_WORKERS = 8
_WIDTH = 76  # click indents help by two


class Row(NamedTuple):
    """A relaxation: a line about it, and how its name may go on."""

    summary: str
    algorithms: tuple[str, ...]
    compressors: bool


class Names(NamedTuple):
    """All names of a kind, each in the order of its table."""

    relaxations: Mapping[str, Row]
    compressors: list[str]
    feedbacks: list[str]
    topologies: list[str]


class TaskName(StrEnum):
    """Tasks that have real data on every machine."""

    DIGITS = "digits"
    CHARS = "chars"


class OrderName(StrEnum):
    """Orders in which parameters are pulled."""

    TAC = "tac"
    TIC = "tic"
    BEST = "best"
    RANDOM = "random"
    LAYER = "layer"


@cache
def known() -> Names:
    """What the file has."""
    text = resources.files("relaxjax.cli").joinpath("names.json").read_text()
    found = parsed(text.encode())
    rows = {name: Row(*row) for name, row in found.pop("relaxations").items()}
    return Names(rows, **found)


def require_name(relaxation: str) -> None:
    """ValueError for a name that no relaxation has."""
    names = known()
    taken_apart(relaxation, names.relaxations, names.compressors, names.feedbacks)


def tasks(incomplete: str) -> list[str]:
    """Completions of what is typed of a task: names, Python files, and folders."""
    folder, slash, _ = incomplete.rpartition("/")
    here = Path(folder + slash or ".")
    found = sorted(here.iterdir()) if here.is_dir() else []
    near = [f for f in found if f.is_dir() or f.suffix == ".py"]
    files = [f"{folder}{slash}{f.name}{'/' * f.is_dir()}" for f in near]
    return [name for name in (*TaskName, *files) if name.startswith(incomplete)]


def relaxations(incomplete: str) -> list[tuple[str, str]]:
    """Completions of what is typed of a relaxation's name, each with its summary."""
    names = known()
    head, plus, rest = incomplete.partition("+")
    row = names.relaxations.get(head.partition("@")[0])
    if "@" in incomplete and row:
        before = incomplete.partition("@")[0]
        found = [(f"{before}@{name}", row.summary) for name in row.algorithms]
    elif plus and row and row.compressors:
        compressor, second, _ = rest.partition("+")
        pairs = [f"{compressor}+{name}" for name in names.feedbacks]
        tails = pairs if second else names.compressors
        found = [(f"{head}+{tail}", row.summary) for tail in tails]
    else:
        found = [(name, row.summary) for name, row in names.relaxations.items()]
    return [(name, summary) for name, summary in found if name.startswith(incomplete)]


def lists() -> str:
    """A line for each relaxation, and the names that may follow."""
    names = known()
    wide = 4 + max(map(len, names.relaxations))
    rows = (
        fill(
            row.summary,
            _WIDTH,
            initial_indent=f"  {name}".ljust(wide),
            subsequent_indent=" " * wide,
        )
        for name, row in names.relaxations.items()
    )
    sections = {
        "Relaxations": "\n".join(rows),
        "A name is spelled": f"  {GRAMMAR}",
        "Compressors": _listed(names.compressors),
        "Error feedback": _listed(names.feedbacks),
        "Topologies, after @": _listed(names.topologies),
    }
    return "".join(f"\n\n\b\n{title}:\n{text}" for title, text in sections.items())


def _listed(names: Iterable[str]) -> str:
    return indent(fill(", ".join(names), _WIDTH - 2), "  ")

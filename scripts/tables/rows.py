"""Results as they are kept, and rows of Markdown."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[2] / "docs"


def result(name: str) -> Any:
    """A file of docs/results."""
    return json.loads((DOCS / "results" / f"{name}.json").read_text())


def heads(first: str, rest: Iterable[str]) -> list[str]:
    """The first two lines of a table."""
    line = row(first, rest)
    return [line, "|---" * (line.count("|") - 1) + "|"]


def row(first: str, rest: Iterable[str]) -> str:
    """A line of a table."""
    return f"| {first} | {' | '.join(rest)} |"


def within(points: Iterable[float], digits: int = 1) -> str:
    """A difference with its interval."""
    difference, low, high = (f"{x:+.{digits}f}" for x in points)
    return f"{difference} [{low}, {high}]"

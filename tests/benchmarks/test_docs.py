"""Every `python -m benchmarks ...` of the documentation parses; nothing is run."""

import re
import shlex
from pathlib import Path

import pytest

from benchmarks.__main__ import BENCHMARKS, GROUPS, load

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
START = "python -m benchmarks"


def commands(text: str) -> list[str]:
    """What follows `python -m benchmarks`, in code spans and in blocks of code."""
    blocks = re.findall(r"^```.*?^```", text, re.MULTILINE | re.DOTALL)
    lines = [line.partition("#")[0] for block in blocks for line in block.split("\n")]
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose)]
    found = (x.partition(START) for x in (*lines, *spans))
    return [rest.strip() for _, start, rest in found if start]


def parse(command: str) -> None:
    """Has the parser of a command read its words."""
    words = [w.removesuffix("...") for w in shlex.split(command)]
    if words[-1:] in ([], ["NAME"]):
        return
    name, table = words[0], BENCHMARKS
    if name in GROUPS:
        name, table, words = words[1], GROUPS[name], words[1:]
    load(name, table).make_context(name, words[1:])


COMMANDS = [(page.name, each) for page in PAGES for each in commands(page.read_text())]


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_a_command_of_a_page_is_one(page, command):
    parse(command)

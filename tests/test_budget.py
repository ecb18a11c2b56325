"""How large the package may be: a ratchet, turned by hand and with a reason.

Files and bodies stay short, rooms stay small enough to be read from a list, and code
lines (by `ast`: no docstrings, comments or blank lines) are stated in one place.
"""

import ast
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1] / "relaxjax"
# Raise it in the commit that needs it, and say in its message what for.
CODE_LINES = 41_040
FILE_LINES, BODY_LINES = 205, 17  # the ninth decile of each
ROOM = 20  # files outside of an inner room


def files() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def code_lines(source: str) -> int:
    """Lines that hold a part of a statement, without docstrings."""
    tree = ast.parse(source)
    texts = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            value = body[0].value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                texts |= set(range(value.lineno, (value.end_lineno or 0) + 1))
    lines = source.splitlines()
    return sum(
        1
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.strip().startswith("#") and number not in texts
    )


def bodies(source: str) -> list[int]:
    """Lines of each function's body, without its docstring."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        body = node.body[1:] if ast.get_docstring(node) else node.body
        if body:
            found.append((body[-1].end_lineno or 0) - body[0].lineno + 1)
    return found


def test_code_lines_stay_within_what_is_stated():
    assert sum(code_lines(path.read_text()) for path in files()) <= CODE_LINES


def test_most_files_and_bodies_are_short():
    lines = [len(path.read_text().splitlines()) for path in files()]
    assert np.quantile(lines, 0.9) <= FILE_LINES
    lengths = [n for path in files() for n in bodies(path.read_text())]
    assert np.quantile(lengths, 0.9) <= BODY_LINES


def test_no_room_is_a_wall_of_drawers():
    inside = [p for p in files() if p.name != "__init__.py" and p.parent != ROOT]
    rooms = Counter(p.parent.relative_to(ROOT).as_posix() for p in inside)
    assert {room: count for room, count in rooms.items() if count > ROOM} == {}


@pytest.mark.parametrize(
    ("source", "count"),
    [("x = 1\n", 1), ('"""Text\n\nmore."""\n\n# why\nx = (\n    1\n)\n', 3)],
)
def test_what_a_code_line_is(source, count):
    assert code_lines(source) == count

"""The core reads in an afternoon: its size, and the page that gives the order."""

import ast
import io
import re
import tokenize
from pathlib import Path

import relaxjax
from tests.test_floors import FLOORS

PACKAGE = Path(relaxjax.__file__).parent
DOCS = PACKAGE.parent / "docs"
LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def core() -> list[Path]:
    """The files of the numbered list, in its order."""
    text = (DOCS / "reading.md").read_text()
    part = text.partition("## The core, in an afternoon")[2].partition("\n## ")[0]
    return [PACKAGE / name for name in re.findall(r"`((?:\w+/)+\w+\.py)`", part)]


def lines_of_code(path: Path) -> int:
    """Lines with code; docstrings, comments, blank lines and imports do not count."""
    text = path.read_text()
    tree = ast.parse(text)
    other: set[int] = set()
    for node in ast.walk(tree):
        prose = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.Import | ast.ImportFrom) or (
            prose and isinstance(node, ast.Expr)
        ):
            other |= set(range(node.lineno, (node.end_lineno or 0) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in LAYOUT:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - other)


def test_the_core_reads_in_an_afternoon():
    files = core()
    assert len(files) == len(set(files)) > 30
    sizes = {str(path.relative_to(PACKAGE)): lines_of_code(path) for path in files}
    assert sum(sizes.values()) <= 1500, sizes


def test_a_line_of_code_is_one(tmp_path):
    path = tmp_path / "x.py"
    path.write_text('"""Doc."""\nimport os\n\n# why\nx = (\n    1,\n)\n')
    assert lines_of_code(path) == 3


def test_pictures_name_every_room_and_files_that_exist():
    floors = (DOCS / "pictures" / "floors.svg").read_text()
    assert set().union(*FLOORS) == set(re.findall(r">(\w+)</text>", floors)) - {
        str(n) for n in range(1, 11)
    }
    way = (DOCS / "pictures" / "gradient.svg").read_text()
    named = re.findall(r"\b((?:\w+/)+_\w+)\b", way)
    assert len(named) > 10
    for name in named:
        assert (PACKAGE / f"{name}.py").exists(), name

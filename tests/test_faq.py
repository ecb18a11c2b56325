"""The FAQ quotes messages that the package really has."""

import ast
import re
from pathlib import Path

import pytest

import relaxjax

ROOT = Path(relaxjax.__file__).parent
PAGE = ROOT.parent / "docs" / "faq.md"
QUOTED = re.findall(r"^### `(.*)`$", PAGE.read_text(), flags=re.MULTILINE)


def template(node: ast.expr) -> str:
    """A text with dots for what is filled in."""
    if isinstance(node, ast.JoinedStr):
        return "".join(map(template, node.values))
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.sub(r"\{[^{}]*\}", "…", node.value)  # as of str.format
    return "…"


def texts() -> set[str]:
    found = set()
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr | ast.Constant):
                found.add(template(node))
    return found


TEXTS = texts()


def test_there_are_questions():
    assert len(QUOTED) == len(set(QUOTED)) > 20


@pytest.mark.parametrize("quoted", QUOTED)
def test_each_message_is_in_the_source(quoted):
    assert any(quoted in text for text in TEXTS)


def test_a_message_that_is_not():
    assert not any("the mesh has no axle" in text for text in TEXTS)
    assert template(ast.parse('f"a {b!r} c" "d"', mode="eval").body) == "a … cd"

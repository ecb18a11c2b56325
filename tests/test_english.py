"""Faults of language that crept in once stay out: one spelling, and plain sentences."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BRITISH = re.compile(
    r"\w*(neighbour|synchronis|decentralis|quantis|colour|behaviour|centre)\w*", re.I
)
TITLES: set[str] = set()
"""Words that stand in the quoted title of a work."""
FILES = sorted(
    path
    for folder in ("relaxjax", "benchmarks", "docs", "examples", "scripts", "findings")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in (".py", ".md", ".sh")
    if not {"_build", "algorithms"} & set(path.parts)
)
FILES += [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_one_spelling_and_plain_sentences(path):
    text = path.read_text()
    found = {m.group() for m in BRITISH.finditer(text)} - TITLES
    assert not found, f"{path.name}: American spelling, please: {found}"
    assert "as of `" not in text, f"{path.name}: say 'as in' or 'see'"
    assert "is none of" not in text, f"{path.name}: say 'is not one of'"
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
                doc = ast.get_docstring(node) or ""
                assert not re.match(r"(Of|As of|As) ", doc), f"{path.name}: {doc[:60]}"


PLAIN = (
    "activations adding algorithms api benchmarks carriers checkpoints "
    "collectives coming_from command_line compare compared compression concepts "
    "controllers decentralized extending faq faults gallery golden gpu gradients "
    "hosts index islands local_updates merges more_recipes museum network orders "
    "parameter_server peers periods plain_jit planning production quality recipes "
    "sharded speed step_recipes testbed testing tour transfers what_is_here which_one"
)
"""Pages that were read aloud. Others follow; none of these goes back."""
MOST = 4  # of each, in a thousand words of prose
FIGURE = re.compile(r"\b\d[\d,.]*(?:e-?\d+)?")


def prose(text: str) -> str:
    """A page without code, tables, links and headings."""
    made = r"<!-- results: .*?<!-- end -->"
    text = re.sub(rf"```.*?```|{made}", "", text, flags=re.S)
    text = re.sub(r"^(\||#|\{|<!--).*$", "", text, flags=re.M)
    return re.sub(r"`[^`]*`|\]\([^)]*\)|\$[^$]*\$", "", text)


@pytest.mark.parametrize("page", PLAIN.split())
def test_a_page_that_was_read_aloud_stays_plain(page):
    """Nouns in place of "what", full stops, and no sentence of six figures."""
    text = prose((ROOT / "docs" / f"{page}.md").read_text())
    most = max(1, MOST * len(text.split()) / 1000)
    assert len(re.findall(r"\bwhat\b", text, re.I)) <= most
    assert text.count(";") <= most
    for sentence in re.split(r"(?<=[.!?])\s", text):
        assert len(FIGURE.findall(sentence)) < 6, sentence

"""A module's docstring as Markdown: sentences as prose, equations as they stand.

Docstrings keep to two kinds of paragraphs: sentences begin at the margin, and what is
indented (equations, algorithms, tables) stands as it is.
"""

import re
from itertools import groupby

from citations import cited

SPECIAL = re.compile(r"([\\*_{}\[\]<>|$#~])")
CODE = re.compile(r"(`[^`]+`)")
LABEL = re.compile(r"^(Sources?|Cost|State|Learning rate):")
INDENT = "    "


def markdown(doc: str, pages: dict[str, str]) -> str:
    """The Markdown of a docstring without its first line.

    Args:
      doc: the docstring, as `inspect.getdoc` returns it.
      pages: the pages of modules, which their names link to.
    """
    paragraphs = [p for p in doc.partition("\n")[2].strip("\n").split("\n\n") if p]
    parts = []
    for code, group in groupby(paragraphs, key=lambda p: p.startswith(INDENT)):
        if code:
            parts.append("```text\n" + "\n\n".join(map(_dedented, group)) + "\n```")
        else:
            parts += [prose(p, pages) for p in group]
    return "\n\n".join(parts)


def prose(paragraph: str, pages: dict[str, str]) -> str:
    """The Markdown of a paragraph of sentences, with links to what it cites."""
    text = " ".join(paragraph.split())
    result, at = "", 0
    for citation in cited(text):
        if citation.address:
            result += _escaped(text[at : citation.start], pages)
            result += f"[{_plain(citation.words)}]({citation.address})"
            at = citation.end
    return LABEL.sub(r"**\1:**", result + _escaped(text[at:], pages))


def _dedented(paragraph: str) -> str:
    return "\n".join(line.removeprefix(INDENT) for line in paragraph.split("\n"))


def _escaped(text: str, pages: dict[str, str]) -> str:
    """Text that says in Markdown what it says; code in backticks stays code."""
    return "".join(
        _code(part, pages) if CODE.fullmatch(part) else _plain(part)
        for part in CODE.split(text)
    )


def _plain(text: str) -> str:
    return SPECIAL.sub(r"\\\1", text)


def _code(text: str, pages: dict[str, str]) -> str:
    page = pages.get(text.strip("`"))
    return f"[{text}]({page})" if page else text

"""What the source line of a module cites, with titles and addresses.

`papers.toml` has an entry for each work, under the words by which docstrings cite it.
"""

import functools
import re
import tomllib
from pathlib import Path
from typing import NamedTuple

PAPERS = Path(__file__).parents[1] / "papers.toml"
YEAR = re.compile(r"\b(?:19|20)\d\d\b")


class Citation(NamedTuple):
    """A work, where a text cites it.

    Attributes:
      start: index of its first character in the text.
      words: the words of the citation.
      title: the title of the work.
      address: where it can be read; empty if nowhere.
    """

    start: int
    words: str
    title: str
    address: str

    @property
    def end(self) -> int:
        """The index after its last character."""
        return self.start + len(self.words)


@functools.cache
def papers() -> dict[str, dict[str, str]]:
    """The table of works, by the words of their citations."""
    return tomllib.loads(PAPERS.read_text())


def source_of(doc: str) -> str:
    """The paragraph of a docstring that begins with its source, on one line."""
    for paragraph in doc.split("\n\n"):
        if re.match(r"Sources?: ", paragraph):
            return " ".join(paragraph.split())
    return ""


def cited(text: str) -> list[Citation]:
    """The works that a text on one line cites, as they come."""
    found: list[Citation] = []
    for words, work in sorted(papers().items(), key=lambda item: -len(item[0])):
        for match in re.finditer(rf"(?<!\w){re.escape(words)}(?!\w)", text):
            taken = any(c.start < match.end() and match.start() < c.end for c in found)
            if not taken:
                address = work.get("address", "")
                found.append(Citation(match.start(), words, work["title"], address))
    return sorted(found)


def uncovered(text: str) -> list[str]:
    """Years in a text that no citation covers."""
    works = cited(text)
    return [
        match.group()
        for match in YEAR.finditer(text)
        if not any(c.start <= match.start() < c.end for c in works)
    ]

"""Figures with a unit in the prose of a page, and those that results hold."""

import re
from pathlib import Path

from scripts.results import BLOCK

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
NUMBER = r"(?<![\w./-])[+-]?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?"
UNIT = r"%|ms|us|s|minutes|MiB|MB|GB|TB|[KMG]bit/s|GB/s|times|x"
STATED = re.compile(rf"({NUMBER})(?: (?:to|and|or) ({NUMBER}))?\s?({UNIT})(?![\w/])")
Figure = tuple[float, str]


def prose(text: str) -> str:
    """A page without code, tables, comments, headings and addresses."""
    text = re.sub(r"```.*?```|<!--.*?-->", "", text, flags=re.S)
    text = re.sub(r"^\s*(\||#|\{|!\[).*$", "", text, flags=re.M)
    return " ".join(re.sub(r"`[^`]*`|\]\([^)]*\)|\$[^$]*\$", "", text).split())


def stated(text: str) -> list[tuple[str, Figure]]:
    """Each figure with its unit, as it stands and as a number; both ends of a range."""
    return [
        (f"{each} {unit}", (value(each), unit))
        for *ends, unit in STATED.findall(prose(text))
        for each in ends
        if each
    ]


def value(figure: str) -> float:
    """That of a figure as it is written; a sign is a matter of words."""
    return abs(float(figure.replace(",", "").rstrip(".")))


def numbers(table: str) -> set[float]:
    """All that stand in the cells of a table."""
    return {value(each) for each in re.findall(NUMBER, table.replace("1/", " "))}


def made(text: str) -> str:
    """The tables of a page that are made from results."""
    return "\n".join(match[0] for match in BLOCK.finditer(text))


def archived(text: str) -> str:
    """The pages of the archive that a page links to."""
    names = sorted(set(re.findall(r"archive/(\w+)\.md", text)))
    return "\n".join((DOCS / "archive" / f"{name}.md").read_text() for name in names)


def cells(text: str) -> str:
    """All tables of a page."""
    return "\n".join(x for x in text.splitlines() if x.lstrip().startswith("|"))


def precise(number: float) -> bool:
    """Whether it has three digits or more, so that it is hardly met by chance."""
    return len(f"{number:g}".split("e")[0].replace(".", "").strip("0")) >= 3


def linked(text: str) -> str:
    """The pages beside this one that a text links to."""
    names = sorted(set(re.findall(r"\]\((\w+)\.md", text)))
    pages = (DOCS / f"{name}.md" for name in names)
    return "\n".join(page.read_text() for page in pages if page.exists())


def not_held(text: str, tables: set[float]) -> list[str]:
    """Figures of a page that no result holds.

    Args:
      text: the page.
      tables: numbers of the tables of all pages that are made from results.
    """
    archive, here = archived(text), numbers(made(text))
    said, elsewhere = {x for _, x in stated(archive)}, tables | numbers(cells(archive))
    found = []
    for part in re.split(r"\n\s*\n", re.sub(r"```.*?```", "", text, flags=re.S)):
        own = here | numbers(made(linked(part)))
        found += [
            shown
            for shown, (number, unit) in stated(part)
            if (number, unit) not in said
            and number not in own
            and not (precise(number) and number in elsewhere)
        ]
    return found

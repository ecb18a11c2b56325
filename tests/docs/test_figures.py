"""Figures in prose rest on results, and no page has many of them.

A figure with a unit is held if a page of the archive to which its page links states it
with that unit, or if a table that is made from `docs/results`, `docs/studies` or
`docs/gpu` has its number: a table of the same page, or, for three digits or more, of
any page or of that archive. What is a setting is said in words, or stands in code.
"""

import pytest

from tests.docs import figures
from tests.test_english import FIGURE, prose

PAGES = {page.stem: page for page in sorted(figures.DOCS.glob("*.md"))}
PAGES["README"] = figures.ROOT / "README.md"
MOST = 30  # figures in a thousand words


@pytest.fixture(scope="module")
def tables():
    texts = (page.read_text() for page in PAGES.values())
    return figures.numbers("\n".join(map(figures.made, texts)))


@pytest.mark.parametrize("page", PAGES)
def test_figures_with_a_unit_rest_on_results(page, tables):
    assert figures.not_held(PAGES[page].read_text(), tables) == []


@pytest.mark.parametrize("page", PAGES)
def test_prose_has_few_figures(page):
    text = prose(PAGES[page].read_text())
    found = FIGURE.findall(text)
    assert len(found) <= MOST * len(text.split()) / 1000, found


def test_every_result_is_shown_by_a_page():
    pages = "".join(page.read_text() for page in PAGES.values())
    for made in ("tables", "pictures"):
        files = (figures.ROOT / "scripts" / made).glob("*.py")
        pages += "".join(x.read_text() for x in files)
    pages += "".join(x.read_text() for x in (figures.DOCS / "_ext").glob("*.py"))
    pages += "".join(x.read_text() for x in (figures.DOCS / "archive").glob("*.md"))
    names = {path.stem for path in (figures.DOCS / "results").glob("*.json")}
    assert {name for name in names if name not in pages} == set()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It takes 2 to 9 % longer.", ["2 %", "9 %"]),
        ("It takes 1,200 ms and `3 s`.\n\n| 4 s |\n", ["1,200 ms"]),
        ("```sh\nsleep 5 s\n```\nA link of 50 Mbit/s.", ["50 Mbit/s"]),
        ("Four of 6 steps, jax 0.12, 1/402, 2 sums, 3.9 times.", ["3.9 times"]),
    ],
)
def test_a_figure_has_a_number_and_a_unit(text, found):
    assert [shown for shown, _ in figures.stated(text)] == found


def test_a_figure_is_held_by_a_table_the_archive_or_nobody():
    archive = "See [the archive](archive/gpu.md)."
    (_, (number, unit)), *_ = figures.stated(figures.archived(archive))
    assert figures.not_held(f"It took {number:g} {unit}.", set()) != []
    assert figures.not_held(f"It took {number:g} {unit}. {archive}", set()) == []
    assert figures.not_held("It took 12.3457 % or 777 s.", {12.3457}) == ["777 s"]
    shown = "8-bit codes lose 0.1 % ([planning](planning.md#quality))."
    assert figures.not_held(shown, set()) == []
    assert figures.not_held(f"They lose 0.1 %.\n\n{shown}", set()) == ["0.1 %"]
    few = (
        "It took 77 %.",
        "<!-- results: peers -->\n| 77 |\n<!-- end -->\nIt took 77 %.",
    )
    assert [figures.not_held(text, {77.0}) for text in few] == [["77 %"], []]

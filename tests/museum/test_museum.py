"""Each exhibit's wrong rule breaks its law, ours obeys it, and the page says so."""

import re
from pathlib import Path

import pytest

from tests.museum import codes, means, memory
from tests.museum.exhibit import Exhibit

EXHIBITS = [*codes.EXHIBITS, *means.EXHIBITS, *memory.EXHIBITS]
PAGE = Path(__file__).parents[2] / "docs" / "museum.md"
FIGURES = re.compile(r"\*\*(\S+)\*\* by the\s+wrong\s+rule,\s+\*\*(\S+)\*\*\s+here\.")


def sections() -> dict[str, str]:
    """The page's text by its third-level headings."""
    _, *parts = re.split(r"^### ", PAGE.read_text(), flags=re.MULTILINE)
    return dict(part.split("\n", 1) for part in parts)


def test_the_page_has_every_exhibit_once():
    titles = [exhibit.title for exhibit in EXHIBITS]
    assert len(set(titles)) == len(titles) >= 25
    assert sorted(sections()) == sorted(titles)


@pytest.mark.few(6)
@pytest.mark.parametrize("exhibit", EXHIBITS, ids=lambda x: x.title)
def test_the_wrong_rule_is_wrong_and_ours_is_right(exhibit: Exhibit):
    wrong, ours = exhibit.wrong(), exhibit.ours()
    assert not exhibit.holds(wrong), wrong
    assert exhibit.holds(ours), ours
    found = FIGURES.search(sections()[exhibit.title])
    assert found, "the page has no line **...** by the wrong rule, **...** here."
    for shown, figure in zip(found.groups(), (wrong, ours), strict=True):
        close = pytest.approx(figure, rel=0.02, abs=1e-5, nan_ok=True)
        assert float(shown) == close

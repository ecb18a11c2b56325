"""Each exhibit's wrong rule breaks its law, ours obeys it, and the page says so."""

import re
from pathlib import Path

import pytest

from tests.museum import codes, means, memory
from tests.museum.exhibit import Exhibit

EXHIBITS = [*codes.EXHIBITS, *means.EXHIBITS, *memory.EXHIBITS]
PAGE = Path(__file__).parents[2] / "docs" / "museum.md"
ROW = re.compile(r"^\| \[(.+)\]\(#.+\) \| .+ \| (\S+) \| (\S+) \|$", re.MULTILINE)


def titles() -> list[str]:
    """The page's third-level headings."""
    return re.findall(r"^### (.+)$", PAGE.read_text(), flags=re.MULTILINE)


def rows() -> dict[str, tuple[str, str]]:
    """The figures of the page's tables by their exhibits: the wrong rule's, ours."""
    return {
        title: (wrong, ours) for title, wrong, ours in ROW.findall(PAGE.read_text())
    }


def test_the_page_has_every_exhibit_once():
    names = [exhibit.title for exhibit in EXHIBITS]
    assert len(set(names)) == len(names) >= 25
    assert sorted(titles()) == sorted(names)
    assert [row[0] for row in ROW.findall(PAGE.read_text())] == titles()


@pytest.mark.long
@pytest.mark.few(6)
@pytest.mark.parametrize("exhibit", EXHIBITS, ids=lambda x: x.title)
def test_the_wrong_rule_is_wrong_and_ours_is_right(exhibit: Exhibit):
    wrong, ours = exhibit.wrong(), exhibit.ours()
    assert not exhibit.holds(wrong), wrong
    assert exhibit.holds(ours), ours
    for shown, figure in zip(rows()[exhibit.title], (wrong, ours), strict=True):
        close = pytest.approx(figure, rel=0.02, abs=1e-5, nan_ok=True)
        assert float(shown) == close

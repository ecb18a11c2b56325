"""What a newcomer sees first is there, and the page of everything has everything."""

import re
from pathlib import Path

import relaxjax

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
FIRST_SCREEN = "\n".join(README.splitlines()[:26])
LINK = re.compile(r"\]\([^)]*?(docs/[^)#]+|[A-Z]+\.(?:md|cff))")


def test_the_first_screen_has_the_result_both_commands_and_the_choice():
    assert "relaxjax train --relaxation all_reduce --workers 8" in FIRST_SCREEN
    assert "\npython3 scripts/check.py\n" in FIRST_SCREEN
    assert {"docs/network.md", "docs/pictures/time_to_loss.svg"} <= set(
        LINK.findall(FIRST_SCREEN)
    )
    assert "\n## Which one\n" in FIRST_SCREEN


def test_links_of_the_readme_lead_to_files():
    found = LINK.findall(README)
    assert len(found) > 20
    assert [x for x in found if not (ROOT / x).exists()] == []


def test_every_public_function_is_on_the_page_of_what_is_here():
    page = set(re.findall(r"\w+", (ROOT / "docs" / "what_is_here.md").read_text()))
    names = {name for name in relaxjax.__all__ if name[0].islower()}
    assert names - page == set()


def test_every_page_is_in_the_index():
    index = (ROOT / "docs" / "index.md").read_text()
    listed = re.findall(r"^\w+$", index, flags=re.MULTILINE)
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")} - {"index"}
    assert sorted(listed) == sorted(pages)

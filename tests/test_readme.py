"""What a newcomer sees first is there, and the page of everything has everything."""

import re
import sys
from pathlib import Path

import pytest

import relaxjax
from scripts import train

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
FIRST_SCREEN = "\n".join(README.splitlines()[:30])
NARROW = 39  # characters of code on a screen of 390 px
LINK = re.compile(r"\]\([^)]*?(docs/[^)#]+|[A-Z]+\.(?:md|cff))")


def test_the_first_screen_has_the_result_both_commands_and_the_choice():
    assert "\npython3 scripts/train.py\npython3 scripts/check.py\n" in FIRST_SCREEN
    assert {"docs/network.md", "docs/pictures/time_to_loss.svg"} <= set(
        LINK.findall(FIRST_SCREEN)
    )
    assert "\n## Which one\n" in FIRST_SCREEN


@pytest.mark.parametrize("page", [README, (ROOT / "docs" / "index.md").read_text()])
def test_code_of_the_front_door_fits_a_telephone(page):
    boxes = re.findall(r"^```(?:diff|sh)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(boxes) == 2
    assert [x for box in boxes for x in box.splitlines() if len(x) > NARROW] == []


def test_the_first_command_makes_an_environment_and_trains_in_it(monkeypatch):
    run: list[list[str]] = []
    monkeypatch.setattr(train, "run", lambda *words: run.append([*map(str, words)]))
    monkeypatch.setattr(train, "HOME", ROOT / "absent")
    train.main([])
    made, installed, trained = run
    assert made[1:] == ["-m", "venv", str(ROOT / ".venv")]
    assert installed[1:-1] == ["-m", "pip", "install", "-q", "-e"]
    assert installed[-1] == f"{ROOT}[cli]"
    assert f"`relaxjax {' '.join(trained[3:])}`" in (ROOT / "docs/tour.md").read_text()
    assert {installed[0], trained[0]} == {str(ROOT / "absent" / "python")}


def test_options_of_the_first_command_are_those_of_train(monkeypatch):
    run: list[list[str]] = []
    monkeypatch.setattr(train, "run", lambda *words: run.append([*map(str, words)]))
    train.main(["--relaxation", "gossip"])
    assert run[-1][1:] == ["-m", "relaxjax", "train", "--relaxation", "gossip"]


def test_the_first_command_ends_as_what_fails_in_it():
    with pytest.raises(SystemExit) as stopped:
        train.run(sys.executable, "-c", "exit(3)")
    assert stopped.value.code == 3


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

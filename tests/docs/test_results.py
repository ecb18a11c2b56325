"""Tables and pictures of pages are those of docs/results, and the best are the best."""

import pytest

from scripts import pictures, results
from scripts.tables import TABLES, network, programs, rows

PAGES = [page for page in rows.DOCS.glob("*.md") if "results:" in page.read_text()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_tables_of_a_page_are_made_from_the_results(page):
    text = page.read_text()
    assert text.count("<!-- results: ") == len(results.BLOCK.findall(text))
    assert results.filled(text) == text


def test_every_table_stands_on_a_page():
    pages = "".join(page.read_text() for page in PAGES)
    assert {name for _, name, _ in results.BLOCK.findall(pages)} == set(TABLES)


def test_pictures_are_drawn_from_the_results():
    assert pictures.stale() == {}


def test_a_picture_without_its_source_is_stale(tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "FOLDER", tmp_path)
    assert set(pictures.stale()) == set(pictures.PICTURES)
    (tmp_path / "a").write_text("1")
    one, other = pictures.digest((tmp_path,)), pictures.digest((tmp_path / "a",))
    assert one == other
    (tmp_path / "a").write_text("2")
    assert pictures.digest((tmp_path,)) != one


def test_the_best_of_a_system_by_hand():
    blocks = [
        {"rate": 20.0, "method": name, "seconds": seconds}
        for name, each in {
            "a": (1.0, 2.0, 9.0), "b": (3.0, 3.0, 3.0), "DDP c": (1.0, 1.0, 1.0),
            "alone": (0.1,), "DDP alone": (0.1,), "d": (0.1,),
        }.items()
        for seconds in each
    ]  # fmt: skip
    steps = {"a": 10.0, "b": 5.0, "DDP c": 30.0, "alone": 1.0, "d": float("inf")}
    points = network.to_the_loss({"blocks": blocks, "steps_to_loss": steps})[20.0]
    assert network.best(points, "relaxjax") == (20.0, "b", (15.0, 15.0, 15.0))
    assert points["a"].seconds == (20.0, 10.0, 90.0)
    assert network.best(points, "PyTorch").label == "DDP c"
    assert "d" not in points


def test_signs_digits_and_what_was_fitted():
    assert rows.within([0.25, -0.5, 1.04]) == "+0.2 [-0.5, +1.0]"
    assert rows.heads("a", ["b"]) == ["| a | b |", "|---|---|"]
    lines = TABLES["published-scaling"]()
    assert len(lines) == 6  # seven less three that were fitted, and two heads
    assert lines[2] == "| VGG-16 | 512 | 0.68 | 0.79 |"
    assert TABLES["merges-tax"]()[2].startswith('| `"mean"`, accuracy | 95.9 % |')
    assert TABLES["first-step"]()[3].startswith("| `all_reduce` | 1.3 | 2.20 | 5.89 |")


def test_three_digits_from_one_on():
    shown = [programs.short(x, 2) for x in (0.004, 0.47, 1.1, 47.498, 123.4)]
    assert shown == ["0", "0.47", "1.10", "47.5", "123"]

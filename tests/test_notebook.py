"""The notebook runs from its first cell to its last, and shows what it keeps."""

import re
from pathlib import Path

import pytest

from scripts import notebook
from tests.shown import require_same

PATH = Path(__file__).parents[1] / "examples" / "notebooks" / "first_relaxation.ipynb"
STEPS = re.compile(r"^STEPS, ROWS, RATE = 200,", re.MULTILINE)


def outputs(cell) -> dict[str, str]:
    """What a cell shows, by kind."""
    found = {}
    for each in cell["outputs"]:
        if each["output_type"] == "stream":
            found["printed"] = "".join(each["text"])
        found |= each.get("data", {})
    return found


def test_it_is_short_and_has_been_run():
    whole = notebook.load(PATH)
    assert len(whole["cells"]) == 10
    assert len({cell["id"] for cell in whole["cells"]}) == 10
    shown = [outputs(cell) for cell in notebook.code(whole)]
    assert all(shown)
    assert any("image/png" in each for each in shown)
    assert any("<table>" in each.get("text/html", "") for each in shown)


@pytest.mark.long
def test_its_cells_run_on_a_brief_form():
    cells = ["".join(cell["source"]) for cell in notebook.code(notebook.load(PATH))]
    cells[0], found = STEPS.subn("STEPS, ROWS, RATE = 20,", cells[0])
    assert found == 1
    names: dict[str, object] = {}
    shown = [notebook.outputs(*notebook.run(cell, names), 1) for cell in cells]
    kinds = [list(outputs({"outputs": each})) for each in shown]
    assert kinds == [list(outputs(cell)) for cell in notebook.code(notebook.load(PATH))]


@pytest.mark.slow
def test_its_cells_print_what_it_keeps():
    names: dict[str, object] = {}
    for cell in notebook.code(notebook.load(PATH)):
        printed, _ = notebook.run("".join(cell["source"]), names)
        require_same(outputs(cell).get("printed", ""), printed)


def test_a_cell_prints_and_its_last_expression_is_its_value():
    assert notebook.run("x = 2\nprint(x)\nx + 1", {}) == ("2\n", 3)
    assert notebook.run("x = 2", {}) == ("", None)
    (kept,) = notebook.outputs("", 3, 7)
    assert kept["data"] == {"text/plain": "3"}
    assert kept["execution_count"] == 7

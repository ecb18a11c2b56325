"""The crossing of optax: nothing of it is left out, and no cell is silent.

The file that the page shows has every cell. A few are run again in the suite, all of
them as slow tests; a machine's own rounding may not change a verdict.
"""

import json
import warnings
from pathlib import Path
from typing import Any

import jax
import optax
import pytest

from benchmarks.crossing import inventory, places, verdicts
from benchmarks.crossing.hands import Hand
from benchmarks.crossing.instead import WAYS, instead
from benchmarks.crossing.inventory import NO_CELL, ROWS, Row, candidates, unknown
from benchmarks.crossing.places import NO_PROGRAM, PLACES
from benchmarks.crossing.study import cells
from benchmarks.crossing.verdicts import SILENT, cell

FILE = Path(__file__).parents[2] / "docs" / "results" / "crossing.json"
STORED: dict[tuple[str, str], dict[str, Any]] = {
    (row["name"], row["place"]): row for row in json.loads(FILE.read_text())["cells"]
}
CROSSED = [(name, at) for name in ROWS for at in PLACES if (name, at) not in NO_PROGRAM]


def test_all_that_optax_has_is_in_the_table_or_has_a_reason():
    assert unknown() == []
    assert len(candidates()) > 100
    assert not {name for name in NO_CELL if name in ROWS}


def test_what_is_new_in_optax_is_found(monkeypatch):
    def scale_by_surprise(rate: float) -> optax.GradientTransformation:
        return optax.scale(rate)

    monkeypatch.setattr(optax, "scale_by_surprise", scale_by_surprise, raising=False)
    assert unknown() == ["scale_by_surprise"]


def test_the_file_has_every_cell_and_none_is_silent():
    assert list(STORED) == CROSSED
    assert [row for row in STORED.values() if row["verdict"] in SILENT] == []


def test_each_refusal_has_a_way_out_that_is_equal():
    """And no way out stands for none."""
    used = set()
    for (name, place), row in STORED.items():
        if row["verdict"] == "refused":
            way = instead(row["words"])
            assert way is not None, row
            other = dict(way.rows).get(name, name), way.place or place
            assert STORED[other]["verdict"] == "equal", (row, other)
            used.add(WAYS.index(way))
    assert used == set(range(len(WAYS)))


@pytest.mark.long
@pytest.mark.few(8)
@pytest.mark.parametrize(("name", "place"), CROSSED)
def test_a_cell_is_what_the_page_says(name, place):
    row = STORED[name, place]
    found = cell(name, place)
    assert (found.verdict, found.words[:60]) == (row["verdict"], row["words"][:60])


def made(monkeypatch, place: Any) -> verdicts.Cell:
    """The cell of SGD in a place of one's own."""
    monkeypatch.setitem(PLACES, "mine", place)
    return cell("sgd", "mine")


def test_verdicts(monkeypatch):
    right = Hand(ROWS["sgd"]).one_device()

    def told() -> Any:
        warnings.warn("init: something is wrong", stacklevel=1)
        return right

    def refusing() -> Any:
        return PLACES["fsdp"](ROWS["clip_by_global_norm"])

    def failing() -> Any:
        raise ValueError("of somebody else")

    apart = jax.tree.map(lambda x: x, right)
    apart[-1][-1]["bias"] = apart[-1][-1]["bias"] + 0.01
    seen = [
        made(monkeypatch, lambda row, do=do: do())
        for do in (lambda: right, told, lambda: apart, refusing, failing)
    ]
    kinds = [found.verdict for found in seen]
    assert kinds == ["equal", "warned", "wrong", "refused", "broken"]
    assert [found.apart == 0 for found in seen[:3]] == [True, True, False]
    assert seen[1].words == "init: something is wrong"


def test_an_optimizer_that_sees_a_workers_own_gradient_is_wrong(monkeypatch):
    """The table's reason to be: no reducer stands before it, and nobody says so."""
    alone = places.partial(places.data_parallel, lambda tx: tx, init=silent_init)
    assert made(monkeypatch, alone).verdict == "wrong"


def silent_init(tx: Any, params: Any, mesh: Any) -> Any:
    return places.relaxjax.init(tx, params, mesh, reduced_in_step=True)


def test_a_row_is_run_in_every_place(monkeypatch):
    few = {name: PLACES[name] for name in ("all_reduce", "fsdp")}
    monkeypatch.setattr("benchmarks.crossing.study.PLACES", few)
    found = list(cells(["contrib.sam, opaque"]))
    assert [(row["place"], row["verdict"]) for row in found] == [
        ("all_reduce", "equal"),
        ("fsdp", "refused"),
    ]


def test_rows_build_what_their_names_say():
    assert isinstance(inventory.then_sgd(optax.clip, 1.0), Row)
    for name in ("chain", "contrib.sam", "scale"):
        assert hasattr(ROWS[name].make({"w": 1.0}), "update")

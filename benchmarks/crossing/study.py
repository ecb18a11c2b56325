"""Runs the crossing table, or a part of it."""

from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from typing import Annotated, Any

import typer

from benchmarks.crossing.hands import Hand
from benchmarks.crossing.inventory import ROWS
from benchmarks.crossing.places import NO_PROGRAM, PLACES
from benchmarks.crossing.task import WORKERS
from benchmarks.crossing.verdicts import SILENT, cell
from benchmarks.report import Result, Run, Table, benchmark

Only = Annotated[
    list[str] | None, typer.Option(help="Names of transformations; default: all.")
]


@benchmark("crossing", devices=WORKERS, platform="cpu")
def crossing(run: Run, only: Only = None) -> Result:
    """Every transformation of optax in every place, against training by hand."""
    versions = {name: version(name) for name in ("optax", "flax")}
    result: Result = {"conditions": run.conditions(**versions), "cells": []}
    for row in cells(only or list(ROWS)):
        result["cells"].append(row)
        run.save(result)
    found = result["cells"]
    counts = Counter((row["place"], row["verdict"]) for row in found)
    verdicts = sorted({row["verdict"] for row in found})
    rows = [(place, *(counts[place, v] for v in verdicts)) for place in PLACES]
    bad = [f"{c['name']} in {c['place']}: {c}" for c in found if c["verdict"] in SILENT]
    return run.finish(
        result,
        tables=[Table("Cells by verdict", ("place", *verdicts), rows)],
        notes=bad or ["no cell is wrong or broken"],
    )


def cells(names: list[str]) -> Iterator[dict[str, Any]]:
    """The cells of these rows, one by one."""
    for name in names:
        hand = Hand(ROWS[name])
        for place in PLACES:
            if (name, place) not in NO_PROGRAM:
                found = cell(name, place, hand)._asdict()
                yield {"name": name, "place": place, **found}

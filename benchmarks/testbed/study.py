"""TicTac's own setting: processes over shaped links, orders measured and predicted.

Source: Hashemi, Abdu Jyothi and Campbell, "TicTac", MLSys 2019: up to 37.7 % in
inference and 19.2 % in training over no order, stragglers up to 2.3 times rarer.

Gain: the mean step of the random orders over the step of an order, by rounds, less 1.
Straggler effect: how long the fastest worker waits for the slowest, as a share of the
slowest one's step.
"""

from collections.abc import Sequence
from statistics import fmean, median
from typing import Annotated, Any

import numpy as np
import typer
from scipy.stats import kendalltau

from benchmarks import measure
from benchmarks.report import Result, Run, Table, benchmark
from benchmarks.testbed import Namespaces
from benchmarks.testbed.cell import LINKS, Cell, Options, run_cell
from benchmarks.testbed.cell_model import COMPUTE, towers
from relaxjax.cli.common._errors import user_errors

ORDERED = ("layer", "tic", "tac", "best")
MODES = ("inference", "training")


@benchmark("testbed")
def study(
    run: Run,
    workers: Annotated[
        list[int] | None, typer.Option(min=1, help="Worker processes; default: 1, 2.")
    ] = None,
    servers: Annotated[
        list[int] | None, typer.Option(min=1, help="Server processes; default: 1.")
    ] = None,
    mode: Annotated[
        list[str] | None, typer.Option(help="inference, training; default: both.")
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=1, help="Rounds, in which orders take turns.")
    ] = 3,
    orders: Annotated[int, typer.Option(min=2, help="Random orders.")] = 20,
    rows: Annotated[
        int | None,
        typer.Option(min=1, help="Rows of each worker; default: 1024, or 8 if stated."),
    ] = None,
    compute: Annotated[str, typer.Option(help="real, or stated: waiting.")] = "real",
    width: Annotated[int, typer.Option(min=1, help="Width of the model.")] = 256,
    ratio: Annotated[
        float, typer.Option(min=0.01, help="Communication over computation.")
    ] = 1.0,
    links: Annotated[
        str | None,
        typer.Option(help="namespaces (root) or loopback; default: what is possible."),
    ] = None,
) -> Result:
    """Servers and workers as processes: orders of the pulls, measured and predicted."""
    with user_errors():
        check(modes=mode, compute=compute, links=links)
    links = links or ("loopback" if Namespaces.missing() else "namespaces")
    rows = rows or (1024 if compute == "real" else 8)
    options = Options(rows, rounds, orders, ratio, links, compute == "real")
    model = towers(width=width, compute=compute)
    conditions = run.conditions(
        **options._asdict(),
        why_no_namespaces=Namespaces.missing(),
        parameters=sum(leaf.size for leaf in model.leaves.values()),
        nbytes=sum(model.nbytes.values()),
        leaves=len(model.leaves),
        threads="one for XLA in each process",
    )
    cells: list[dict[str, Any]] = []
    result = {"conditions": conditions, "cells": cells}
    for which in mode or MODES:
        for w in workers or (1, 2):
            for s in servers or (1,):
                cell = run_cell(model, Cell(w, s, which), options)
                cells.append(cell | {"summary": summary(cell)})
                run.save(result)
    tables = [*map(_cell_table, cells), _gains(cells), _stragglers(cells)]
    return run.finish(result, tables=tables)


def check(*, modes: Sequence[str] | None, compute: str, links: str | None) -> None:
    """Refuses unknown names, and namespaces where they cannot be made.

    Raises:
      ValueError: the argument, its value and what it may be.
    """
    for name, values, known in (
        ("mode", modes or (), MODES),
        ("compute", (compute,), COMPUTE),
        ("links", (links,) if links else (), LINKS),
    ):
        if odd := [value for value in values if value not in known]:
            raise ValueError(f"{name} must be one of {[*known]}, got {odd[0]!r}")
    if links == "namespaces" and (reason := Namespaces.missing()):
        raise ValueError(f"links=namespaces: {reason}; take loopback")


def summary(cell: dict[str, Any]) -> dict[str, Any]:
    """What the seconds of a cell, as `run_cell` returns it, say."""
    seconds, predicted = cell["seconds"], cell["predicted"]
    randoms = [name for name in cell["orders"] if name.startswith("random")]
    by_round = [
        fmean(times) for times in zip(*(seconds[n] for n in randoms), strict=True)
    ]
    expected = fmean(predicted[n] for n in randoms)
    medians = {name: median(times) for name, times in seconds.items()}
    unlike = list(
        {tuple(order): name for name, order in cell["orders"].items()}.values()
    )
    least = {name: min(times) for name, times in seconds.items()}
    tau, tau_least = (_tau(predicted, times, unlike) for times in (medians, least))
    return {
        "median": medians,
        "tau": tau,
        "tau_least": tau_least,
        "random": fmean(medians[n] for n in randoms),
        "random_predicted": expected,
        "gain": {n: _gain(by_round, seconds[n]) for n in (*ORDERED, "none")},
        "gain_predicted": {n: expected / predicted[n] - 1 for n in (*ORDERED, "none")},
        "straggler": {n: cell["stragglers"][n] for n in ("tac", "none")},
        "tail": {n: _tail(seconds[n]) for n in ("tac", "none")},
        "seen": {n: cell["seen"][n] for n in ("tac", "none")},
    }


def _tau(one: dict[str, float], other: dict[str, float], names: list[str]) -> float:
    """Kendall's tau of two lists of seconds."""
    result: Any = kendalltau([one[n] for n in names], [other[n] for n in names])
    return float(result.statistic)


def _gain(randoms: list[float], seconds: list[float]) -> list[float]:
    """The median gain over rounds, and its interval."""
    each = np.array(seconds).reshape(len(randoms), -1).mean(axis=1)
    faster = measure.ratio(randoms, each.tolist())
    return [faster.median - 1, faster.low - 1, faster.high - 1]


def _tail(seconds: list[float]) -> float:
    return float(np.percentile(seconds, 95) / np.percentile(seconds, 50))


def _cell_table(cell: dict[str, Any]) -> Table:
    numbers = cell["summary"]
    title = f"{cell['mode']}, workers {cell['workers']}, servers {cell['servers']}"
    title += f": {8e-6 * cell['rate']:.0f} Mbit/s, "
    title += (
        f"tau {numbers['tau']:.2f} of medians, {numbers['tau_least']:.2f} of minima"
    )
    columns = ("order", "median s", "min", "max", "predicted s", "gain", "predicted")
    rows = [
        (
            name,
            numbers["median"][name],
            min(cell["seconds"][name]),
            max(cell["seconds"][name]),
            cell["predicted"][name],
            _percent(numbers["gain"][name]),
            f"{100 * numbers['gain_predicted'][name]:+.1f} %",
        )
        for name in (*ORDERED, "none")
    ]
    every = [s for n in cell["orders"] if n[:6] == "random" for s in cell["seconds"][n]]
    means = numbers["random"], min(every), max(every), numbers["random_predicted"]
    return Table(title, columns, [*rows, ("random, mean", *means, "", "")])


def _percent(gain: list[float]) -> str:
    middle, low, high = (100 * g for g in gain)
    return f"{middle:+.1f} % [{low:+.1f}, {high:+.1f}]"


def _name(cell: dict[str, Any]) -> str:
    return f"{cell['mode']} {cell['workers']}/{cell['servers']}"


def _gains(cells: Sequence[dict[str, Any]]) -> Table:
    rows = [
        (
            _name(cell),
            *(_percent(cell["summary"]["gain"][n]) for n in ("tic", "tac", "best")),
            f"{100 * cell['summary']['gain_predicted']['tac']:+.1f} %",
            cell["summary"]["tau"],
            cell["summary"]["tau_least"],
        )
        for cell in cells
    ]
    columns = ("workers/servers", "TIC", "TAC", "best", "TAC predicted")
    columns = (*columns, "tau of medians", "of minima")
    return Table("Gain over the mean random order", columns, rows)


def _stragglers(cells: Sequence[dict[str, Any]]) -> Table:
    measures = ("straggler", "tail", "seen")
    rows = [
        (_name(c), *(c["summary"][m][n] for m in measures for n in ("none", "tac")))
        for c in cells
    ]
    columns = ("straggler effect, no order", "TAC", "p95 / p50, no order", "TAC")
    columns = (*columns, "orders seen, no order", "TAC")
    return Table("Stragglers and tails", ("workers/servers", *columns), rows)

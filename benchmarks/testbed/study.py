"""TicTac's own setting: processes over shaped links, orders measured and predicted.

Source: Hashemi, Abdu Jyothi and Campbell, "TicTac", MLSys 2019: up to 37.7 % in
inference and 19.2 % in training over no order, stragglers up to 2.3 times rarer.

Gain: the mean step of the random orders over the step of an order, by rounds, less 1.
Straggler effect: how long the fastest worker waits for the slowest, as a share of the
slowest one's step.
"""

from collections.abc import Sequence
from statistics import fmean, median
from typing import Any

import numpy as np
from scipy.stats import kendalltau

from benchmarks.measure import ratio
from benchmarks.report import conditions, save, show
from benchmarks.testbed import Namespaces
from benchmarks.testbed.cell import LINKS, Cell, Wishes, run
from benchmarks.testbed.cell_model import COMPUTE, towers

ORDERED = ("layer", "tic", "tac", "best")
MODES = ("inference", "training")


def run_testbed(
    *,
    workers: Sequence[int] = (1, 2),
    servers: Sequence[int] = (1,),
    modes: Sequence[str] = MODES,
    rounds: int = 3,
    orders: int = 20,
    rows: int | None = None,
    compute: str = "real",
    width: int = 256,
    comm_over_compute: float = 1.0,
    links: str | None = None,
    out: str = "runs/bench",
) -> dict[str, Any]:
    """Measures every order in every cell, and predicts each.

    Args:
        workers: numbers of worker processes.
        servers: numbers of server processes.
        modes: "inference" and "training".
        rounds: in which every order runs once; TAC and no order four times.
        orders: how many random orders, each the same for all workers.
        rows: of the batch of each worker; by default 1024, or 8 of stated computation.
        compute: "real", on the machine's cores, or "stated": layers that wait.
        width: of the model.
        comm_over_compute: on the busiest link; sets the links' rate.
        links: "namespaces" or "loopback"; by default the first where it can be.
        out: folder of the JSON.

    Returns:
        Conditions, and for each cell seconds, predictions and what follows.
    """
    links = links or ("loopback" if Namespaces.missing() else "namespaces")
    rows = rows or (1024 if compute == "real" else 8)
    wishes = Wishes(rows, rounds, orders, comm_over_compute, links, compute == "real")
    model = towers(width=width, compute=compute)
    cells = [Cell(w, s, m) for m in modes for w in workers for s in servers]
    result: dict[str, Any] = {
        "conditions": conditions(
            **wishes._asdict(),
            compute=compute,
            why_no_namespaces=Namespaces.missing(),
            parameters=sum(leaf.size for leaf in model.leaves.values()),
            nbytes=sum(model.nbytes.values()),
            leaves=len(model.leaves),
            threads="one for XLA in each process",
        ),
        "cells": [],
    }
    for cell in cells:
        found = run(model, cell, wishes)
        result["cells"].append(found | {"summary": summary(found)})
        save(result, out, "testbed")
        _print(result["cells"][-1])
    _print_all(result)
    return result


def check(*, modes: Sequence[str] | None, compute: str, links: str | None) -> None:
    """Refuses what cannot be run.

    Args:
        modes: names, or None.
        compute: a name.
        links: a name, or None.

    Raises:
        ValueError: an unknown name, or namespaces where they cannot be made.
    """
    for what, names, known in (
        ("mode", modes or (), MODES),
        ("compute", (compute,), COMPUTE),
        ("links", (links,) if links else (), LINKS),
    ):
        if odd := [name for name in names if name not in known]:
            raise ValueError(f"{what} must be one of {[*known]}, got {odd[0]!r}")
    if links == "namespaces" and (reason := Namespaces.missing()):
        raise ValueError(f"links=namespaces: {reason}; take loopback")


def summary(cell: dict[str, Any]) -> dict[str, Any]:
    """What a cell's seconds say.

    Args:
        cell: as `run` returns it.
    """
    seconds, predicted = cell["seconds"], cell["predicted"]
    randoms = [name for name in cell["orders"] if name.startswith("random")]
    by_round = [fmean(own) for own in zip(*(seconds[n] for n in randoms), strict=True)]
    expected = fmean(predicted[n] for n in randoms)
    medians = {name: median(own) for name, own in seconds.items()}
    unlike = list(
        {tuple(order): name for name, order in cell["orders"].items()}.values()
    )
    least = {name: min(own) for name, own in seconds.items()}
    tau, tau_least = (_tau(predicted, found, unlike) for found in (medians, least))
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
    found: Any = kendalltau([one[n] for n in names], [other[n] for n in names])
    return float(found.statistic)


def _gain(randoms: list[float], own: list[float]) -> list[float]:
    """Median over rounds, and its interval."""
    each = np.array(own).reshape(len(randoms), -1).mean(axis=1)
    found = ratio(randoms, each.tolist())
    return [found.median - 1, found.low - 1, found.high - 1]


def _tail(seconds: list[float]) -> float:
    return float(np.percentile(seconds, 95) / np.percentile(seconds, 50))


def _print(cell: dict[str, Any]) -> None:
    found = cell["summary"]
    title = f"{cell['mode']}, workers {cell['workers']}, servers {cell['servers']}"
    title += f": {8e-6 * cell['rate']:.0f} Mbit/s, "
    title += f"tau {found['tau']:.2f} of medians, {found['tau_least']:.2f} of minima"
    columns = ("order", "median s", "min", "max", "predicted s", "gain", "predicted")
    rows = [
        (
            name,
            found["median"][name],
            min(cell["seconds"][name]),
            max(cell["seconds"][name]),
            cell["predicted"][name],
            _percent(found["gain"][name]),
            f"{100 * found['gain_predicted'][name]:+.1f} %",
        )
        for name in (*ORDERED, "none")
    ]
    every = [s for n in cell["orders"] if n[:6] == "random" for s in cell["seconds"][n]]
    means = found["random"], min(every), max(every), found["random_predicted"]
    show(title, columns, [*rows, ("random, mean", *means, "", "")])


def _percent(gain: list[float]) -> str:
    middle, low, high = (100 * g for g in gain)
    return f"{middle:+.1f} % [{low:+.1f}, {high:+.1f}]"


def _print_all(result: dict[str, Any]) -> None:
    cells = {
        f"{c['mode']} {c['workers']}/{c['servers']}": c["summary"]
        for c in result["cells"]
    }
    rows = [
        (
            name,
            *(_percent(own["gain"][n]) for n in ("tic", "tac", "best")),
            f"{100 * own['gain_predicted']['tac']:+.1f} %",
            own["tau"],
            own["tau_least"],
        )
        for name, own in cells.items()
    ]
    columns = ("workers/servers", "TIC", "TAC", "best", "TAC predicted")
    columns = (*columns, "tau of medians", "of minima")
    show("Gain over the mean random order", columns, rows)
    measures = ("straggler", "tail", "seen")
    rows = [
        (name, *(own[m][n] for m in measures for n in ("none", "tac")))
        for name, own in cells.items()
    ]
    columns = ("straggler effect, no order", "TAC", "p95 / p50, no order", "TAC")
    columns = (*columns, "orders seen, no order", "TAC")
    show("Stragglers and tails", ("workers/servers", *columns), rows)
    print(result["conditions"])

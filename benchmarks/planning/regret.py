"""What the planner's choice costs between real hosts, over the best that was measured.

Reads the folders of `python -m benchmarks network --part steps`, one for each model;
nothing is run. A cell is a model at a rate. For half of the models (or, of a single
model, half of its rates) the planner knows the seconds of steps, and fits what it
cannot know otherwise:

    T - compute  =  line (s / rate + c)  +  hops alpha  +  coded / gamma
                                                       (least squares, none below 0)

with line, hops and coded as `relaxjax.plan` counts them, s and alpha of messages and of
the backend's own all-reduce apart, c of a processor that moves bytes, however fast the
link is, and gamma of each compressor. In the other cells it knows the model's shapes, a
step without communication, and the rate. Of the methods that were measured it takes the
one that it predicts to be the fastest:

    regret   = measured seconds of the choice / least measured seconds

and once more with the halves exchanged. Beside it: always the plain all-reduce, and
always what sends least.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from scipy.optimize import nnls

from benchmarks.planning.regret_cells import Cell, cells, split
from benchmarks.report import Result, Run, Table, benchmark
from relaxjax.cli.common._errors import user_errors
from relaxjax.plan import Network
from relaxjax.plan._candidate import Candidate
from relaxjax.plan._candidates import candidates
from relaxjax.plan._predict import predict
from relaxjax.schedule import Link

TARGET_MEAN, TARGET_WORST = 1.03, 1.10
PLAIN = "all_reduce"
COLUMNS = "choice", "best", "regret", "plain", "least"
_BUCKET = 8 * 2**20


class Known(NamedTuple):
    """What was fitted.

    Attributes:
      share: inverse of the share of a rate that payload gets.
      latency: seconds of a message.
      psum_share: the same as `share`, for the backend's all-reduce.
      psum_latency: the same as `latency`, for it.
      copy: seconds of each byte on a line, whatever its rate.
      codecs: seconds of each byte, by compressor.
    """

    share: float
    latency: float
    psum_share: float
    psum_latency: float
    copy: float
    codecs: dict[str, float]

    def network(self, rate: float, hosts: int) -> Network:
        """The network at a rate, in Mbit/s."""
        line = rate * 1e6 / 8

        def link(share: float, latency: float) -> Link:
            return Link(
                latency=latency, bandwidth=1 / max(share / line + self.copy, 1e-15)
            )

        rates = {name: 1 / max(cost, 1e-15) for name, cost in self.codecs.items()}
        return Network(
            workers=hosts,
            link=link(self.share, self.latency),
            psum=link(self.psum_share, self.psum_latency),
            codec=rates,
            joined=False,
            overlap=False,
        )


def fit(cells: Sequence[Cell]) -> Known:
    """What explains the steps of these cells best."""
    known = _known(cells[0])
    names = list(dict.fromkeys(_codec(c) for c in known if c.compressor))
    rows, waits = [], []
    for cell in cells:
        for c in _known(cell):
            step = cell.seconds[c.label]
            rows.append(_row(c, cell, names) / step)
            waits.append((step - cell.model.compute) / step)
    units, _ = nnls(np.array(rows), np.array(waits))
    codecs = dict(zip(names, units[5:].tolist(), strict=True))
    codecs[""] = max(codecs.values(), default=0.0)
    share, latency, psum_share, psum_latency, copy = units[:5].tolist()
    return Known(share, latency, psum_share, psum_latency, copy, codecs)


def _codec(c: Candidate) -> str:
    """The name of a candidate's compressor, without feedback."""
    return c.compressor.partition("+")[0]


def _known(cell: Cell) -> list[Candidate]:
    """The candidates that were measured there."""
    every = candidates(Network(workers=cell.hosts))
    return [c for c in every if c.label in cell.seconds]


def _row(c: Candidate, cell: Cell, names: Sequence[str]) -> np.ndarray:
    """The units that a step takes, in the order of `Known`."""
    row = np.zeros(5 + len(names))
    network = Network(workers=cell.hosts, joined=False)
    for message in c.messages(cell.model, network, _BUCKET):
        place = 2 if message.native else 0
        row[place] += message.traffic.line / (cell.rate * 1e6 / 8)
        row[place + 1] += message.traffic.hops
        row[4] += message.traffic.line
        if c.compressor:
            row[5 + names.index(_codec(c))] += message.traffic.coded
    return row / c.every


def chosen(cell: Cell, known: Known) -> dict[str, Any]:
    """The planner's choice in a measured cell, and what it costs."""
    network = known.network(cell.rate, cell.hosts)
    guess, sent = {}, {}
    for c in _known(cell):
        step = predict(c, cell.model, network, _BUCKET)
        guess[c.label], sent[c.label] = step.seconds, step.nbytes
    best = min(cell.seconds.values())
    choice, least = min(guess, key=guess.__getitem__), min(sent, key=sent.__getitem__)
    errors = [abs(guess[label] / cell.seconds[label] - 1) for label in guess]
    return {
        "model": cell.name,
        "rate": cell.rate,
        "choice": choice,
        "best": min(cell.seconds, key=cell.seconds.__getitem__),
        "regret": cell.seconds[choice] / best,
        "plain": cell.seconds[PLAIN] / best,
        "least": cell.seconds[least] / best,
        "error": float(np.mean(errors)),
    }


@benchmark("regret")
def regret(
    run: Run,
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="FOLDER...", help="Folders of network --part steps, one a model."
        ),
    ],
    without: Annotated[
        list[str] | None,
        typer.Option(help="Beginning of labels that may not be chosen."),
    ] = None,
) -> Result:
    """The planner's choice between real hosts, over the best that was measured."""
    with user_errors():
        halves = split(cells(folders, without or ()))
    ways = [way(*halves), way(*reversed(halves))]
    conditions = run.conditions(folders=[*map(str, folders)], without=without or [])
    columns = ("model", ("Mbit/s", "rate"), *COLUMNS)
    tables, notes = [], []
    for each in ways:
        title = "Fitted to " + ", ".join(each["fitted"])
        tables.append(Table.of(f"{title}: those", each["seen"], *columns))
        tables.append(Table.of(f"{title}: others", each["unseen"], *columns))
        notes += [f"{title}: {half} {found}" for half, found in each["summary"].items()]
    return run.finish(
        {"conditions": conditions, "ways": ways}, tables=tables, notes=notes
    )


def way(fitted: Sequence[Cell], rest: Sequence[Cell]) -> dict[str, Any]:
    """What is chosen where half of the cells is fitted to."""
    known = fit(fitted)
    seen, unseen = ([chosen(cell, known) for cell in half] for half in (fitted, rest))
    return {
        "fitted": list(dict.fromkeys(cell.name for cell in fitted)),
        "fit": known._asdict(),
        "seen": seen,
        "unseen": unseen,
        "summary": {"seen": _summary(seen), "unseen": _summary(unseen)},
    }


def _summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Mean and worst of the choice and of the two rules beside it."""
    numbers: dict[str, float] = {"cells": len(rows)}
    for rule in ("regret", "plain", "least"):
        ratios = [row[rule] for row in rows]
        numbers |= {
            f"{rule}_mean": float(np.mean(ratios)),
            f"{rule}_worst": max(ratios),
        }
    return numbers | {"error": float(np.mean([row["error"] for row in rows]))}

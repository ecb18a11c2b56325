"""What the planner's choice costs between real hosts, over the best that was measured.

Reads the folders of `relaxjax bench network --part steps`, one for each model; nothing
is run. A cell is a model at a rate; of half of the models (or, of a single model, of
half of its rates) the planner is told what steps took, and fits what it cannot know:

    T - compute  =  line (s / rate + c)  +  hops alpha  +  coded / gamma
                                                       (least squares, none below 0)

with line, hops and coded as `relaxjax.plan` counts them, s and alpha of messages and of
the backend's own all-reduce apart, c of a processor that moves bytes, however fast the
link is, and gamma of each compressor. In the other cells it
knows the model's shapes, a step without communication, and the rate. It takes what it
predicts to be the fastest of the methods that were measured:

    regret   = measured seconds of the choice / least measured seconds

Beside it: always the plain all-reduce, and always what sends least.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls

from benchmarks.planning.regret_cells import Cell, cells, split
from benchmarks.report import conditions, save, show
from relaxjax.plan import Network
from relaxjax.plan._candidate import Candidate
from relaxjax.plan._candidates import candidates
from relaxjax.plan._predict import predict
from relaxjax.schedule import Link

TARGET_MEAN, TARGET_WORST = 1.03, 1.10
PLAIN = "all_reduce"
_BUCKET = 8 * 2**20


class Known(NamedTuple):
    """What was fitted: seconds for each unit, of messages, of psum, of codecs.

    Attributes:
      share: inverse, of a rate that payload gets.
      latency: of a message.
      psum_share: as share, of the backend's all-reduce.
      psum_latency: as latency.
      copy: for each byte on a line, whatever its rate.
      codecs: seconds for each byte, by compressor.
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


def fit(told: Sequence[Cell]) -> Known:
    """What explains the steps that were told.

    Args:
      told: cells.
    """
    names = list(
        dict.fromkeys(
            c.compressor.partition("+")[0] for c in _known(told[0]) if c.compressor
        )
    )
    rows, wanted = [], []
    for cell in told:
        for c in _known(cell):
            step = cell.seconds[c.label]
            rows.append(_row(c, cell, names) / step)
            wanted.append((step - cell.model.compute) / step)
    units, _ = nnls(np.array(rows), np.array(wanted))
    codecs = dict(zip(names, units[5:].tolist(), strict=True))
    codecs[""] = max(codecs.values(), default=0.0)
    share, latency, psum_share, psum_latency, copy = units[:5].tolist()
    return Known(share, latency, psum_share, psum_latency, copy, codecs)


def _known(cell: Cell) -> list[Candidate]:
    """The candidates that were measured there."""
    every = candidates(Network(workers=cell.hosts))
    return [c for c in every if c.label in cell.seconds]


def _row(c: Candidate, cell: Cell, names: Sequence[str]) -> np.ndarray:
    """How much of each unit a step takes, in the order of `Known`."""
    row = np.zeros(5 + len(names))
    network = Network(workers=cell.hosts, joined=False)
    for message in c.messages(cell.model, network, _BUCKET):
        place = 2 if message.native else 0
        row[place] += message.traffic.line / (cell.rate * 1e6 / 8)
        row[place + 1] += message.traffic.hops
        row[4] += message.traffic.line
        if c.compressor:
            code = names.index(c.compressor.partition("+")[0])
            row[5 + code] += message.traffic.coded
    return row / c.every


def chosen(cell: Cell, known: Known) -> dict[str, Any]:
    """The planner's choice in a cell, and what it costs.

    Args:
      cell: with what was measured.
      known: as `fit` found it.
    """
    network = known.network(cell.rate, cell.hosts)
    guess, sent = {}, {}
    for c in _known(cell):
        found = predict(c, cell.model, network, _BUCKET)
        guess[c.label], sent[c.label] = found.seconds, found.nbytes
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


def regret(
    folders: Sequence[str | Path],
    *,
    without: Sequence[str] = (),
    out: str = "runs/bench",
) -> dict[str, Any]:
    """Prints and saves the choice in each cell.

    Args:
      folders: of the network bench, a model each.
      without: beginnings of labels that may not be chosen, where one wins everywhere.
      out: folder of the JSON.

    Returns:
      What was found, as saved.

    Raises:
      ValueError: as of `cells`; a single cell, of which no half is left.
    """
    found = cells(folders, without)
    if len(found) < 2:
        raise ValueError("regret needs two cells or more: measure more rates or models")
    told, rest = split(found)
    known = fit(told)
    seen, unseen = ([chosen(cell, known) for cell in half] for half in (told, rest))
    result = {
        "conditions": conditions(
            folders=[str(folder) for folder in folders], without=list(without)
        ),
        "fit": known._asdict(),
        "seen": seen,
        "unseen": unseen,
        "summary": {"seen": _summary(seen), "unseen": _summary(unseen)},
    }
    for title, rows in (("Cells that were told", seen), ("Others", unseen)):
        columns = ("model", "Mbit/s", "choice", "best", "regret", "plain", "least")
        show(title, columns, [list(row.values())[:7] for row in rows])
    for half, told_ in result["summary"].items():
        print(half, told_)
    save(result, out, "regret")
    return result


def _summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Mean and worst of the choice and of the two rules beside it."""
    found: dict[str, float] = {"cells": len(rows)}
    for what in ("regret", "plain", "least"):
        each = [row[what] for row in rows]
        found |= {f"{what}_mean": float(np.mean(each)), f"{what}_worst": max(each)}
    return found | {"error": float(np.mean([row["error"] for row in rows]))}

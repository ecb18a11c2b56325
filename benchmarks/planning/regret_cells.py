"""Cells of the network bench: a model at a rate, and what the steps of methods took."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.network import report
from benchmarks.network.methods import ALONE
from benchmarks.network.problem import task
from relaxjax.plan import Model, Network
from relaxjax.plan._candidates import candidates

_USUAL = {
    "local_sgd sync_every=8": "local_sgd",
    "diloco+quantize8@two_shot sync_every=50": "diloco+quantize8 sync_every=50",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Cell:
    """A model at a rate.

    Attributes:
      model: its params and a step's computation.
      rate: of each link, Mbit/s.
      hosts: how many.
      seconds: measured, by the planner's label.
      name: of the model, for tables.
    """

    model: Model
    rate: float
    hosts: int
    seconds: Mapping[str, float]
    name: str


def cells(folders: Sequence[str | Path], without: Sequence[str] = ()) -> list[Cell]:
    """What the network bench has measured.

    Args:
      folders: of its JSON, a model each.
      without: beginnings of labels that may not be chosen.

    Raises:
      ValueError: a folder without measured steps.
    """
    found = []
    for folder in folders:
        told = report.read(Path(folder) / f"{report.STEPS}.json")
        if not told.get("blocks"):
            raise ValueError(
                f"{folder} has no {report.STEPS}.json: run "
                f"relaxjax bench network --part steps --out {folder}"
            )
        shape = told["conditions"]
        params = task(shape["width"], shape["layers"]).params
        for rate in dict.fromkeys(block["rate"] for block in told["blocks"]):
            seconds = report.medians(told["blocks"], rate)
            model = Model(params=params, compute=seconds[ALONE])
            own = {_USUAL.get(label, label): t for label, t in seconds.items()}
            own = {k: t for k, t in own.items() if not k.startswith(tuple(without))}
            known = {c.label for c in candidates(Network(workers=shape["hosts"]))}
            found.append(
                Cell(
                    model=model,
                    rate=rate,
                    hosts=shape["hosts"],
                    seconds={k: t for k, t in own.items() if k in known},
                    name=f"{shape['layers']} layers of {shape['width']}",
                )
            )
    return found


def split(found: Sequence[Cell]) -> tuple[list[Cell], list[Cell]]:
    """Cells that are told, and those that are not: other models, or other rates.

    Args:
      found: all.
    """
    names = list(dict.fromkeys(cell.name for cell in found))
    if len(names) > 1:
        seen = names[::2]
        told = [cell for cell in found if cell.name in seen]
    else:
        told = list(found)[::2]
    return told, [cell for cell in found if cell not in told]

"""Cells of the network bench: a model at a rate, and the seconds of methods' steps."""

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
      rate: Mbit/s of each link.
      hosts: number of hosts.
      seconds: measured seconds of a step, by the planner's label.
      name: the model's name in tables.
    """

    model: Model
    rate: float
    hosts: int
    seconds: Mapping[str, float]
    name: str


def cells(folders: Sequence[str | Path], without: Sequence[str] = ()) -> list[Cell]:
    """The cells that the network bench has measured.

    Args:
      folders: folders of its JSON, a model each.
      without: beginnings of labels that may not be chosen.

    Raises:
      ValueError: a folder has no measured steps.
    """
    measured = []
    for folder in folders:
        saved = report.read(Path(folder) / f"{report.STEPS}.json")
        if not saved.get("blocks"):
            raise ValueError(
                f"{folder} has no {report.STEPS}.json: run "
                f"python -m benchmarks network --part steps --out {folder}"
            )
        shape = saved["conditions"]
        params = task(shape["width"], shape["layers"]).params
        known = {c.label for c in candidates(Network(workers=shape["hosts"]))}
        for rate in dict.fromkeys(block["rate"] for block in saved["blocks"]):
            medians = report.medians(saved["blocks"], rate)
            labeled = {_USUAL.get(label, label): t for label, t in medians.items()}
            seconds = {
                label: t
                for label, t in labeled.items()
                if label in known and not label.startswith(tuple(without))
            }
            cell = Cell(
                model=Model(params=params, compute=medians[ALONE]),
                rate=rate,
                hosts=shape["hosts"],
                seconds=seconds,
                name=f"{shape['layers']} layers of {shape['width']}",
            )
            measured.append(cell)
    return measured


def split(measured: Sequence[Cell]) -> tuple[list[Cell], list[Cell]]:
    """The cells to fit to, and those of other models, or of the only one's other rates.

    Raises:
      ValueError: a single cell, of which there is no half.
    """
    if len(measured) < 2:
        raise ValueError("regret needs two cells or more: measure more rates or models")
    names = list(dict.fromkeys(cell.name for cell in measured))
    if len(names) > 1:
        fitted = [cell for cell in measured if cell.name in names[::2]]
    else:
        fitted = list(measured)[::2]
    return fitted, [cell for cell in measured if cell not in fitted]

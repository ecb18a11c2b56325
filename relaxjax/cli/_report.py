"""The results of a training run: run.json, curves.png, and a table."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from matplotlib.figure import Figure
from rich.table import Table

from relaxjax.check import strict_json
from relaxjax.tasks import Data

_BESIDE = len("held-out bits per character") + len("no relaxation") + 10
"""Columns that the table has besides a name; of them 10 for its frame."""
_PARTS = re.compile("([+@])")  # begins a part of a name


@dataclass(frozen=True, kw_only=True)
class Record:
    """A run; its fields are those of `run.json`, in their order.

    Attributes:
      relaxation: the name, as in `all_reduce@ring`.
      task: the name of the task.
      workers: number of workers.
      steps: number of steps.
      seed: the seed of the initial model and the batches.
      loss: mean training loss over the last stretch of the curve.
      metric_name: what `metric` is.
      metric: the metric of the consensus model, on held-out data.
      bytes_per_step: bytes sent by the busiest device, averaged over a period.
      steps_per_second: the speed without compilation and evaluation.
      spread: the largest difference between two workers' parameters at the end.
      data: size and hash of the data.
      curve: rows of step, loss, metric.
    """

    relaxation: str
    task: str
    workers: int
    steps: int
    seed: int
    loss: float
    metric_name: str
    metric: float
    bytes_per_step: float
    steps_per_second: float
    spread: float
    data: Data
    curve: Sequence[tuple[int, float, float]]

    @property
    def title(self) -> str:
        """A few words for tables and plots."""
        noun = "worker" if self.workers == 1 else "workers"
        return f"{self.relaxation}, {self.workers} {noun}"


def write(record: Record, path: Path) -> None:
    """Writes a run as JSON; numbers that are not finite become null."""
    path.write_text(json.dumps(strict_json(asdict(record)), indent=1) + "\n")


def as_json(records: Sequence[Record]) -> str:
    """A list of runs on one line, each as in `run.json`."""
    return json.dumps([strict_json(asdict(record)) for record in records])


def plot(records: Sequence[Record], path: Path) -> None:
    """Plots loss and metric of runs of one task against the step."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    panels = figure.subplots(1, 2)
    first = records[0]
    names = ("training loss", f"held-out {_words(first.metric_name)}")
    for column, (panel, name) in enumerate(zip(panels, names, strict=True), start=1):
        for record, style in zip(records, ("-o", "--s"), strict=False):
            steps = [point[0] for point in record.curve]
            values = [point[column] for point in record.curve]
            panel.plot(steps, values, style, markersize=3, label=record.title)
        panel.set(xlabel="step", ylabel=name)
        panel.grid(alpha=0.3)
    panels[0].legend()
    figure.suptitle(f"{first.task}, seed {first.seed}")
    figure.savefig(path, dpi=130)


def table(records: Sequence[Record], *, caption: str, width: int) -> Table:
    """Compares runs of one task, a column each, on a console of so many columns."""
    first = records[0]
    title = f"{first.task}: {first.steps} steps, seed {first.seed}"
    result = Table("", title=title, caption=caption)
    for record in records:
        whole = len(record.relaxation) <= width - _BESIDE
        name = record.relaxation if whole else _PARTS.sub(r"\n\1", record.relaxation)
        result.add_column(name, justify="right", no_wrap=True)
    rows: dict[str, Callable[[Record], str]] = {
        "workers": lambda r: str(r.workers),
        "training loss": lambda r: f"{r.loss:.4f}",
        f"held-out {_words(first.metric_name)}": lambda r: f"{r.metric:.4f}",
        "bytes per step": lambda r: f"{r.bytes_per_step:,.0f}",
        "steps per second": lambda r: f"{r.steps_per_second:.1f}",
        "spread": lambda r: f"{r.spread:.3g}",
    }
    for name, show in rows.items():
        result.add_row(name, *map(show, records))
    return result


def _words(name: str) -> str:
    return name.replace("_", " ")

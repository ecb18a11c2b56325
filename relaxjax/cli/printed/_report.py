"""The results of a training run: run.json, curves.png, and a table."""

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter
from rich.table import Table

from relaxjax._core.foreign._folders import write_whole
from relaxjax._core.foreign._words import fixed
from relaxjax.check import strict_json
from relaxjax.tasks import Data

NETWORK, BANDWIDTH = "1 Gbit/s", 1.25e8
"""The link of each worker that times are estimated for, and its bytes per second."""
_LOOKS: tuple[dict[str, Any], ...] = (
    {"color": "#0072B2", "linewidth": 1.4, "marker": "o", "markersize": 3.5},
    {"color": "#E69F00", "linewidth": 6.0, "alpha": 0.6},
)
"""Of the run that was asked for, and of what it is compared with: wider, and behind."""
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
    write_whole(path, json.dumps(strict_json(asdict(record)), indent=1) + "\n")


def as_json(records: Sequence[Record]) -> str:
    """A list of runs on one line, each as in `run.json`."""
    return json.dumps([strict_json(asdict(record)) for record in records])


def plot(records: Sequence[Record], path: Path, *, shared: bool) -> None:
    """Plots the training loss of runs against steps, bytes and estimated seconds.

    Args:
      records: runs of one task; the one that was asked for comes first.
      path: the PNG file.
      shared: whether workers share the machine's cores.
    """
    figure = Figure(figsize=(12, 4.2), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    seconds = estimated_seconds(records, shared=shared)
    scales = {
        "step": [1.0 for _ in records],
        "sent by the busiest worker": [r.bytes_per_step for r in records],
        f"time, estimated at {NETWORK}": seconds,
    }
    for panel, (name, each) in zip(panels, scales.items(), strict=True):
        # The first run comes last, as a thin line on top of the wider ones.
        runs = list(zip(records, each, _LOOKS, strict=False))
        for record, scale, look in reversed(runs):
            _curve(panel, record, scale, look)
        panel.set(xlabel=name, yscale="log")
        panel.set_xlim(left=0)
        panel.locator_params(axis="x", nbins=6)
        panel.grid(which="both", alpha=0.25)
    panels[1].xaxis.set_major_formatter(EngFormatter("B"))
    long = panels[2].get_xlim()[1] > 1000
    panels[2].xaxis.set_major_formatter("{x:,g} s" if long else EngFormatter("s"))
    panels[0].set_ylabel("training loss")
    panels[0].yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
    panels[0].yaxis.set_major_formatter("{x:g}")
    panels[0].yaxis.set_minor_formatter(NullFormatter())
    lines, labels = panels[0].get_legend_handles_labels()
    figure.legend(lines[::-1], labels[::-1], loc="outside lower center", ncols=2)
    figure.suptitle(f"{records[0].task}, seed {records[0].seed}")
    figure.savefig(path, dpi=130)


def _curve(panel: Axes, record: Record, scale: float, look: dict[str, Any]) -> None:
    """Draws a run, or the level that it reaches if it sends nothing."""
    steps = [step for step, *_ in record.curve]
    losses = [loss if loss > 0 else math.nan for _, loss, _ in record.curve]
    label = f"{record.title}: {_words(record.metric_name)} {record.metric:.4g}"
    if scale:
        panel.plot([scale * step for step in steps], losses, label=label, **look)
    else:
        panel.axhline(losses[-1], color=look["color"], linewidth=3, linestyle=":")
        place = {"transform": panel.transAxes, "ha": "right", "va": "top"}
        panel.text(0.97, 0.96, f"{record.title} (dotted)\nsends nothing", **place)


def estimated_seconds(records: Sequence[Record], *, shared: bool) -> list[float]:
    """Seconds of a step of each run on `NETWORK`, with a device for each worker.

    A worker computes its share of what a step of one worker takes here, and then sends
    its bytes; latency is left out. `relaxjax plan` knows more.
    """
    first = records[0]
    alone = next((r for r in records if r.workers == 1), None)
    whole = 1 if alone or shared else first.workers
    rate = (alone or first).steps_per_second
    compute = whole / rate if rate else math.nan  # no step was run: not drawn
    return [compute / r.workers + r.bytes_per_step / BANDWIDTH for r in records]


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
        "training loss": lambda r: fixed(r.loss, 4),
        f"held-out {_words(first.metric_name)}": lambda r: fixed(r.metric, 4),
        "bytes per step": lambda r: f"{r.bytes_per_step:,.0f}",
        "steps per second": lambda r: f"{r.steps_per_second:.1f}",
        "spread": lambda r: f"{r.spread:.3g}",
    }
    for name, show in rows.items():
        result.add_row(name, *map(show, records))
    return result


def _words(name: str) -> str:
    return name.replace("_", " ")

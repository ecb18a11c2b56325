"""One training job: what the user asks for, and all that it needs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import optax
from jax.sharding import Mesh

from relaxjax import hosts
from relaxjax.cli.options._train import TrainOptions
from relaxjax.controllers import Conducted
from relaxjax.schedule import Graph
from relaxjax.tasks import Task
from relaxjax.workers import Emulation

CHECKPOINTS = "checkpoints"  # in the folder of the results


class Order(NamedTuple):
    """An order of transfers, and the graph that it was found from.

    Attributes:
      name: "tac", "tic", "best", "random" or "layer".
      graph: one worker's step.
      names: leaf names, in order.
    """

    name: str
    graph: Graph
    names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Run:
    """A transformation and the workers that use it.

    Attributes:
      name: the name of the relaxation, or what it is compared with.
      tx: the whole transformation.
      mesh: where the workers are.
      period: number of steps over which bytes are averaged.
      conducted: the method under a controller, and its learning rate; None: nothing
        decides while it trains.
    """

    name: str
    tx: optax.GradientTransformation
    mesh: Mesh | Emulation
    period: int
    conducted: tuple[Conducted, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class TrainJob:
    """All that is needed to train, checked.

    Attributes:
      options: what the user asks for.
      task: data and model.
      runs: the run that was asked for, then those it is compared with.
      steps: number of steps of each run.
      batch_size: rows over all workers.
      out: folder for the results; it exists.
      team: the processes that train together.
      patience: how long they wait for each other, as arguments of `hosts.Watch`.
      order: the order of transfers, if one was asked for.
      task_sha256: digest of the task's file, if it is from one.
    """

    options: TrainOptions
    task: Task
    runs: tuple[Run, ...]
    steps: int
    batch_size: int
    out: Path
    team: hosts.Hosts
    patience: dict[str, float]
    order: Order | None = None
    task_sha256: str = ""

"""One training job, checked: from what the user wishes to all that it needs."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import optax
from jax.sharding import Mesh

from relaxjax import hosts
from relaxjax._core._relaxation import Training
from relaxjax.cli import _devices
from relaxjax.cli import _order_report as _ordered
from relaxjax.cli import _resume as _kept
from relaxjax.cli import _train_options as _wishes
from relaxjax.cli._train_options import TrainOptions
from relaxjax.tasks import TASKS, Task
from relaxjax.workers import Emulation

CHECKPOINTS = "checkpoints"  # in the folder of the results


@dataclass(frozen=True, kw_only=True)
class Run:
    """A transformation and the workers that use it.

    Attributes:
      name: the relaxation's, or what stands for it.
      tx: the whole transformation.
      mesh: where the workers are.
      period: number of steps over which bytes are averaged.
    """

    name: str
    tx: optax.GradientTransformation
    mesh: Mesh | Emulation
    period: int


@dataclass(frozen=True, kw_only=True)
class TrainJob:
    """All that is needed to train, checked.

    Attributes:
      task: data and model.
      runs: the run that was asked for, then those it is compared with.
      steps: number of steps of each.
      seed: of the batches.
      batch_size: rows over all workers.
      out: folder for the results; it exists.
      team: the processes that train together.
      patience: how long they wait for each other, as of `relaxjax.hosts.Watch`.
      check_every: steps after which models are compared; None: never.
      checkpoint_every: steps from one checkpoint to the next; None: never.
      resume: whether to go on from the last one.
      order: of transfers, if one was asked for.
      as_json: whether stdout is for JSON alone.
    """

    task: Task
    runs: tuple[Run, ...]
    steps: int
    seed: int
    batch_size: int
    out: Path
    team: hosts.Hosts
    patience: dict[str, float]
    check_every: int | None = None
    checkpoint_every: int | None = None
    resume: bool = False
    order: _ordered.Order | None = None
    as_json: bool = False


def prepare(wishes: TrainOptions) -> TrainJob:
    """Checks the wishes, cheapest checks first, and sets everything up.

    Raises:
      ValueError: an unknown name, numbers that do not fit together, a folder that
        cannot be made.
    """
    _wishes.check(wishes)
    patience = {"lost_after": wishes.lost_after, "stuck_after": wishes.stuck_after}
    team = _team()
    hosts.Watch(team, **patience)  # checks them
    mesh = _devices.set_up(wishes.workers, len(team.members))
    rows = _wishes.batch_size(wishes, mesh.size)
    out = wishes.out or Path("runs") / f"{wishes.task}-{wishes.relaxation}-{mesh.size}"
    _make_folder(out)
    if wishes.checkpoint_every is not None:
        _kept.refuse_other_runs(out / CHECKPOINTS, wishes.resume)
    task = TASKS[wishes.task](wishes.seed)
    steps = wishes.steps or task.steps
    rows = rows or _wishes.rounded_up(task.batch_size, mesh.size)
    order = None
    if wishes.order is not None:
        part = rows // mesh.size
        order = _ordered.find(wishes.order, task, part, wishes.seed)
    names = None if order is None else order.names
    training = _wishes.training(wishes, task, steps, mesh.size, names)
    return TrainJob(
        task=task,
        runs=tuple(_runs(wishes, training, mesh, steps)),
        steps=steps,
        seed=wishes.seed,
        batch_size=rows,
        out=out,
        team=team,
        patience=patience,
        check_every=wishes.check_every,
        checkpoint_every=wishes.checkpoint_every,
        resume=wishes.resume,
        order=order,
        as_json=wishes.as_json,
    )


def _runs(
    wishes: TrainOptions, training: Training, mesh: Mesh | Emulation, steps: int
) -> Iterator[Run]:
    """What was asked for, and what it is compared with."""
    yield Run(
        name=wishes.relaxation,
        tx=_wishes.wrapped(wishes, _wishes.relaxed(wishes, training)),
        mesh=mesh,
        period=_wishes.period(wishes, steps),
    )
    if wishes.baseline:
        yield Run(
            name="no relaxation",
            tx=_wishes.wrapped(wishes, training.optimizer),
            mesh=_devices.one_worker(),
            period=wishes.accumulate,
        )


def _team() -> hosts.Hosts:
    """The processes of this job.

    Raises:
      ValueError: they have not found each other.
    """
    try:
        return hosts.join()
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"--out {out}: cannot make this folder ({error.strerror}); name one that "
            "you may write to"
        ) from error

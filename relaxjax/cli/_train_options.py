"""What the user of `relaxjax train` asks for: its checks, and what it means."""

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optax

from relaxjax._core._relaxation import Training
from relaxjax._names import RELAXATIONS, parse
from relaxjax.cli._devices import AXIS, DEFAULT_WORKERS
from relaxjax.faults import skip_nonfinite
from relaxjax.gradients import accumulate
from relaxjax.tasks import OPTIMIZERS, Task, schedule


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """The options of `relaxjax train`; None leaves a value to the task."""

    relaxation: str = "all_reduce"
    workers: int | None = None
    task: str = "digits"
    steps: int | None = None
    seed: int = 0
    out: Path | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    bucket_mb: float | None = None
    options: tuple[str, ...] = ()
    order: str | None = None
    accumulate: int = 1
    skip_nonfinite: bool = False
    check_every: int | None = None
    checkpoint_every: int | None = None
    resume: bool = False
    baseline: bool = True
    lost_after: float = 15.0
    stuck_after: float = 300.0
    as_json: bool = False


def check(wishes: TrainOptions) -> None:
    """Checks all that can be checked before a device is touched.

    Raises:
      ValueError: an unknown relaxation, an option it does not have, a bad number.
    """
    numbers = {
        "--check-every": wishes.check_every,
        "--checkpoint-every": wishes.checkpoint_every,
        "--steps": wishes.steps,
        "--workers": wishes.workers,
        "--batch-size": wishes.batch_size,
        "--accumulate": wishes.accumulate,
        "--seed": wishes.seed,
    }
    for option, number in numbers.items():
        least = 0 if option == "--seed" else 1
        if number is not None and number < least:
            raise ValueError(
                f"{option} {number}: it must be {least} or more; leave {option} out "
                "for the default"
            )
    amounts = {
        "--learning-rate": wishes.learning_rate,
        "--bucket-mb": wishes.bucket_mb,
        "--lost-after": wishes.lost_after,
        "--stuck-after": wishes.stuck_after,
    }
    for option, amount in amounts.items():
        if amount is not None and not 0 < amount < math.inf:
            raise ValueError(
                f"{option} {amount}: it must be more than 0 and finite; leave {option} "
                "out for the default"
            )
    steps = sys.maxsize if wishes.steps is None else wishes.steps
    workers = wishes.workers or DEFAULT_WORKERS
    relaxed(wishes, Training(optax.identity(), 1.0, steps, workers))
    row = parse(wishes.relaxation).row
    if wishes.check_every is not None and row.apart:
        alike = ", ".join(name for name, row in RELAXATIONS.items() if not row.apart)
        raise ValueError(
            f"--check-every {wishes.check_every}: the workers' models of {row.name} "
            f"differ on purpose; leave it out, or train --relaxation {alike}"
        )
    if wishes.order is not None and not row.ordered:
        able = ", ".join(name for name, row in RELAXATIONS.items() if row.ordered)
        raise ValueError(
            f"--order {wishes.order}: the transfers of {row.name} keep to no order of "
            f"names; leave it out, or train --relaxation {able}"
        )


def batch_size(wishes: TrainOptions, workers: int) -> int | None:
    """The rows that the user asks for, over all workers.

    Raises:
      ValueError: they do not divide among the workers.
    """
    rows = wishes.batch_size
    if rows is not None and rows % workers:
        down, up = rows // workers * workers, rounded_up(rows, workers)
        raise ValueError(
            f"--batch-size {rows} does not divide among {workers} workers; make it a "
            f"multiple of {workers}, such as {f'{down} or {up}' if down else up}"
        )
    return rows


def rounded_up(rows: int, workers: int) -> int:
    """The next number of rows that divides among the workers."""
    return -(-rows // workers) * workers


def relaxed(wishes: TrainOptions, training: Training) -> optax.GradientTransformation:
    """The optimizer, with the relaxation before, after or around it, or in its place.

    Raises:
      ValueError: an option that is no number, or that the relaxation does not have.
    """
    mib = wishes.bucket_mb
    bucket_bytes = None if mib is None else max(1, int(mib * 2**20))
    choice = parse(wishes.relaxation)
    return choice.build(AXIS, training, bucket_bytes=bucket_bytes, **options(wishes))


def period(wishes: TrainOptions, steps: int) -> int:
    """Number of steps over which bytes are averaged."""
    found = parse(wishes.relaxation).period(**options(wishes))
    return steps if found is None else wishes.accumulate * found


def options(wishes: TrainOptions) -> dict[str, Any]:
    """The relaxation's options by name."""
    return dict(map(_option, wishes.options))


def _option(text: str) -> tuple[str, int | float]:
    """A name and a number."""
    name, equals, value = text.partition("=")
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not equals or math.isnan(number):
        raise ValueError(
            f"--set {text}: it must be an option of the relaxation and a number, as in "
            "--set rank=4"
        )
    return name, int(value) if value.lstrip("+-").isdigit() else number


def wrapped(
    wishes: TrainOptions, tx: optax.GradientTransformation
) -> optax.GradientTransformation:
    """The transformation, skipping and accumulating if the user asks for it."""
    if wishes.skip_nonfinite:
        tx = skip_nonfinite(tx, AXIS)
    return tx if wishes.accumulate == 1 else accumulate(tx, wishes.accumulate)


def training(
    wishes: TrainOptions,
    task: Task,
    steps: int,
    workers: int,
    order: tuple[str, ...] | None = None,
) -> Training:
    """The relaxation's parent over its own steps, at the user's rate or the task's."""
    parent = OPTIMIZERS[parse(wishes.relaxation).row.parent]
    peak = wishes.learning_rate
    peak = parent.rate * task.learning_rate if peak is None else peak
    steps = -(-steps // wishes.accumulate)
    rate = schedule(peak, steps)
    return Training(parent.make(rate), rate, steps, workers, order)

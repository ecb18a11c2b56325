"""What the user of `relaxjax train` asks for: its checks, and what it means."""

import math
from dataclasses import dataclass
from pathlib import Path

import optax

from relaxjax._accumulate import accumulate
from relaxjax._relaxations import parse
from relaxjax._skip_nonfinite import skip_nonfinite
from relaxjax.cli._devices import AXIS
from relaxjax.tasks import Task, adamw


@dataclass(frozen=True, kw_only=True)
class Wishes:
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
    sync_every: int | None = None
    accumulate: int = 1
    skip_nonfinite: bool = False
    baseline: bool = True


def check(wishes: Wishes) -> None:
    """Checks all that can be checked before a device is touched.

    Raises:
      ValueError: an unknown relaxation, an option it does not have, a bad number.
    """
    at_least = {"--seed": 0}
    numbers = {
        "--steps": wishes.steps,
        "--workers": wishes.workers,
        "--batch-size": wishes.batch_size,
        "--accumulate": wishes.accumulate,
        "--sync-every": wishes.sync_every,
        "--seed": wishes.seed,
    }
    for option, number in numbers.items():
        least = at_least.get(option, 1)
        if number is not None and number < least:
            raise ValueError(
                f"{option} {number}: it must be {least} or more; leave {option} out "
                "for the default"
            )
    amounts = {
        "--learning-rate": wishes.learning_rate,
        "--bucket-mb": wishes.bucket_mb,
    }
    for option, amount in amounts.items():
        if amount is not None and not 0 < amount < math.inf:
            raise ValueError(
                f"{option} {amount}: it must be more than 0 and finite; leave {option} "
                "out for the default"
            )
    relaxed(wishes, optax.identity())


def batch_size(wishes: Wishes, workers: int) -> int | None:
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


def relaxed(
    wishes: Wishes, optimizer: optax.GradientTransformation
) -> optax.GradientTransformation:
    """The optimizer, with the relaxation before, after or around it."""
    mib = wishes.bucket_mb
    bucket_bytes = None if mib is None else max(1, int(mib * 2**20))
    choice = parse(wishes.relaxation)
    return choice.build(
        AXIS, optimizer, bucket_bytes=bucket_bytes, sync_every=wishes.sync_every
    )


def wrapped(
    wishes: Wishes, tx: optax.GradientTransformation
) -> optax.GradientTransformation:
    """The transformation, skipping and accumulating if the user asks for it."""
    if wishes.skip_nonfinite:
        tx = skip_nonfinite(tx, AXIS)
    return tx if wishes.accumulate == 1 else accumulate(tx, wishes.accumulate)


def optimizer(
    wishes: Wishes, task: Task, steps: int
) -> optax.GradientTransformationExtraArgs:
    """AdamW over the optimizer's own steps, at the user's rate or the task's."""
    peak = wishes.learning_rate
    peak = task.learning_rate if peak is None else peak
    return adamw(peak, -(-steps // wishes.accumulate))

"""The options of `relaxjax train`: their names, their checks, and what they mean."""

import math
import sys
from typing import Any

import optax

from relaxjax._core._relaxation import Training
from relaxjax._core.foreign._ranges import (
    MEBIBYTES,
    RATE,
    SECONDS,
    SEED,
    STEPS,
    WORKERS,
)
from relaxjax._names import RELAXATIONS, parse
from relaxjax.cli.common._devices import AXIS
from relaxjax.cli.common._known import DEFAULT_WORKERS
from relaxjax.cli.options._train import TrainOptions
from relaxjax.controllers import Conducted
from relaxjax.faults import skip_nonfinite
from relaxjax.gradients import accumulate
from relaxjax.tasks import Task, optimizer_of, schedule

_STEPS = ("check_every", "checkpoint_every", "steps", "batch_size", "accumulate")
_COUNTS = dict.fromkeys(_STEPS, STEPS) | {"workers": WORKERS, "seed": SEED}
_POSITIVE = {
    "learning_rate": RATE,
    "bucket_mb": MEBIBYTES,
    "lost_after": SECONDS,
    "stuck_after": SECONDS,
}


def check(options: TrainOptions) -> None:
    """Checks all that can be checked before a device is touched.

    Raises:
      ValueError: an unknown relaxation, an option it does not have, a bad number.
    """
    for name, among in _COUNTS.items():
        number = getattr(options, name)
        if number is not None and number not in among:
            raise _bad_number(name, number, among.broken(number))
    for name, among in _POSITIVE.items():
        amount = getattr(options, name)
        if amount is not None and not 0 < amount < math.inf:
            raise _bad_number(name, amount, "more than 0 and finite")
        if amount is not None and amount not in among:
            raise _bad_number(name, amount, among.broken(amount))
    if options.force and options.resume:
        raise ValueError("--force begins anew, and --resume goes on: leave one out")
    steps = sys.maxsize if options.steps is None else options.steps
    workers = options.workers or DEFAULT_WORKERS
    relaxed(options, Training(optax.identity(), 1.0, steps, workers))
    row = parse(options.relaxation).row
    if options.check_every is not None and row.apart:
        alike = ", ".join(name for name, row in RELAXATIONS.items() if not row.apart)
        raise ValueError(
            f"--check-every {options.check_every}: the workers' models of {row.name} "
            f"differ on purpose; leave it out, or train --relaxation {alike}"
        )
    if options.order is not None and not row.ordered:
        able = ", ".join(name for name, row in RELAXATIONS.items() if row.ordered)
        raise ValueError(
            f"--order {options.order}: the transfers of {row.name} follow no order of "
            f"names; leave it out, or train --relaxation {able}"
        )


def _bad_number(name: str, number: float, rule: str) -> ValueError:
    option = f"--{name.replace('_', '-')}"
    return ValueError(
        f"{option} {number}: it must be {rule}; leave {option} out for the default"
    )


def batch_size(options: TrainOptions, workers: int) -> int | None:
    """The rows that the user asks for, over all workers.

    Raises:
      ValueError: they do not divide among the workers.
    """
    rows = options.batch_size
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


def relaxed(options: TrainOptions, training: Training) -> optax.GradientTransformation:
    """The optimizer, with the relaxation before, after or around it, or in its place.

    Raises:
      ValueError: a setting that is not a number, or that the relaxation does not have.
    """
    if method := conducted(options, training):
        return method.start(training.learning_rate)
    return parse(options.relaxation).build(AXIS, training, **_all_settings(options))


def conducted(options: TrainOptions, training: Training) -> Conducted | None:
    """The relaxation under a controller; None: no option names one.

    Raises:
      ValueError: see `relaxed`; options beside which steps are counted otherwise.
    """
    found = parse(options.relaxation).conducted(
        AXIS, lambda rate: training, **_all_settings(options)
    )
    counts = {
        f"--accumulate {options.accumulate}": options.accumulate > 1,
        "--skip-nonfinite": options.skip_nonfinite,
    }
    if found and (others := [name for name, asked in counts.items() if asked]):
        raise ValueError(
            f"{others[0]} counts other steps than those after which a controller "
            f"decides ({options.periods or options.ranks or options.codes}): leave one "
            "of the two out"
        )
    return found


def _all_settings(options: TrainOptions) -> dict[str, Any]:
    mib = options.bucket_mb
    bucket_bytes = None if mib is None else max(1, int(mib * 2**20))
    return {"bucket_bytes": bucket_bytes, **_settings(options)}


def period(options: TrainOptions, steps: int) -> int:
    """Number of steps over which bytes are averaged."""
    rounds = parse(options.relaxation).period(**_settings(options))
    return steps if rounds is None else options.accumulate * rounds


def _settings(options: TrainOptions) -> dict[str, Any]:
    """The relaxation's own options, by name."""
    own = dict(map(_setting, options.settings or ()))
    texts = {k: getattr(options, k) for k in ("periods", "ranks", "codes", "merge")}
    return own | texts


def _setting(text: str) -> tuple[str, int | float]:
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
    options: TrainOptions, tx: optax.GradientTransformation
) -> optax.GradientTransformation:
    """The transformation, skipping and accumulating if the user asks for it."""
    if options.skip_nonfinite:
        tx = skip_nonfinite(tx, AXIS)
    return tx if options.accumulate == 1 else accumulate(tx, options.accumulate)


def training(
    options: TrainOptions,
    task: Task,
    steps: int,
    workers: int,
    order: tuple[str, ...] | None = None,
) -> Training:
    """The relaxation's parent over its own steps, at the user's rate or the task's."""
    parent = optimizer_of(task, parse(options.relaxation).row.parent)
    peak = options.learning_rate
    peak = parent.rate * task.learning_rate if peak is None else peak
    steps = -(-steps // options.accumulate)
    rate = schedule(peak, steps)
    return Training(parent.make(rate), rate, steps, workers, order)

"""A place on the plot of loss and bytes: short training beside fixed references.

The task's model is trained on 8 emulated workers with the same start, batches, steps
and AdamW for all. A compressor is put into an all-reduce, bare and with error feedback,
as in `relaxjax train` (biases and norms are not compressed); a topology into gossip
after the optimizer; a relaxation is used as it is.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
import optax

from relaxjax._core._relaxation import Training
from relaxjax._names import parse
from relaxjax.check._subjects import AXIS, Subject
from relaxjax.compression import NO_FEEDBACK, error_feedback
from relaxjax.decentralized import gossip
from relaxjax.gradients import reducer
from relaxjax.programs import wire_bytes
from relaxjax.tasks import OPTIMIZERS, Task, schedule, train_step_of
from relaxjax.workers import consensus, data_parallel, emulate, init

WORKERS = 8
REFERENCES = (
    "all_reduce",
    "all_reduce+quantize8@two_shot",
    "all_reduce+sign+ef14@two_shot",
    "all_reduce+top_k+ef14",
)
OVER_GRAPHS = ("all_reduce", "gossip@ring", "gossip@exponential")
Make = Callable[[], optax.GradientTransformation]


def runs_of(
    subjects: Sequence[Subject], task: Task, steps: int
) -> Iterator[tuple[str, str | None, Make]]:
    """Each run's label, its subject (None: a reference), and what makes its `tx`."""
    rate = schedule(task.learning_rate, steps)
    parent = OPTIMIZERS["adamw"].make(rate)
    training = Training(parent, rate, steps, WORKERS)
    kinds = {subject.kind for subject in subjects}
    graphs = OVER_GRAPHS if "topology" in kinds else ()
    others = REFERENCES if kinds - {"topology"} else ()
    for name in dict.fromkeys((*others, *graphs)):
        yield name, None, lambda name=name: parse(name).build(AXIS, training)
    for subject in subjects:
        for label, make in _variants(subject, parent):
            yield label, subject.name, make


def _variants(
    subject: Subject, parent: optax.GradientTransformation
) -> Iterator[tuple[str, Make]]:
    if subject.kind == "relaxation":
        yield subject.name, lambda: subject.make(WORKERS, parent)
    elif subject.kind == "topology":
        graph = subject.graph(WORKERS)
        label = f"gossip@{subject.name}"
        yield label, lambda: optax.chain(parent, gossip(AXIS, graph))
    else:
        bare = subject.compressor()
        compressors = {f"all_reduce+{subject.name}": bare}
        law = bare.law
        if bare.feedback is NO_FEEDBACK and (law.omega or law.delta):
            compressors[f"all_reduce+{subject.name}+ef14"] = error_feedback(bare)
        for label, compressor in compressors.items():
            reduce = reducer(AXIS, compressor=compressor)
            yield label, lambda reduce=reduce: optax.chain(reduce, parent)


def place(
    label: str, subject: str | None, make: Make, task: Task, steps: int
) -> dict[str, Any]:
    """Trains once, given the label of the run and the name of its subject.

    Returns:
      A row: label, subject, bytes_per_step of the busiest worker, loss (mean of the
      last tenth) and metric; or label, subject and the error that the user's code
      raised.
    """
    row: dict[str, Any] = {"label": label, "subject": subject}
    try:
        tx = make()
        counted = min(steps, 64)
        sent = wire_bytes(tx, task.params, emulate(WORKERS), steps=counted) / counted
        loss, metric = _trained(tx, task, steps)
    except (Exception, SystemExit) as error:  # whatever the user's code raises
        return row | {"error": f"{type(error).__name__}: {error}"}
    return row | {"bytes_per_step": sent, "loss": loss, "metric": metric}


def _trained(
    tx: optax.GradientTransformation, task: Task, steps: int
) -> tuple[float, float]:
    """Mean loss of the last tenth of the steps, and the held-out metric."""
    mesh = emulate(WORKERS)
    step = data_parallel(train_step_of(task, tx), mesh, donate=True)
    state = init(tx, task.params, mesh, reduced_in_step=True)
    batches = task.batches(0, task.batch_size)
    losses = []
    for _ in range(steps):
        *state, metrics = step(*state, next(batches))
        losses.append(metrics["loss"])
    last = float(np.mean(losses[-max(1, steps // 10) :]))
    metric = float(task.metric(consensus(state[0])))
    jax.clear_caches()  # no two runs share a program
    return last, metric

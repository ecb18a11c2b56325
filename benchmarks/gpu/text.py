"""Training on text with few bytes: loss against bytes, on models of real size.

Workers are emulated on the device, and bytes counted from the program. One rate, tuned
for none of the methods: the table says what runs and what is sent; for a verdict take
`relaxjax compare`.
"""

from typing import Any

import jax
import numpy as np
import optax

import relaxjax
from benchmarks.gpu.record import Record, Row
from benchmarks.gpu.steps import language
from relaxjax import compression
from relaxjax.tasks import Task, train_step_of

WORKERS = 8
RATE = 5e-4
PERIODS = (100, 400)  # steps between exchanges, hence the share of all-reduce's bytes


def methods(every: int) -> dict[str, Any]:
    """What sends about 1/every of the bytes, and the baseline."""
    adam = optax.adamw(RATE)
    periods = {"params": every, "mu": 3 * every, "nu": 6 * every}
    return {
        "all_reduce": optax.chain(relaxjax.all_reduce("data"), adam),
        f"diloco, {every}": relaxjax.diloco(adam, "data", every),
        f"diloco in 4 bits, {every // 8}": relaxjax.diloco(
            adam,
            "data",
            every // 8,
            compressor=compression.error_feedback(compression.quantize(4)),
        ),
        f"sparse_loco, {max(2, every // 30)}": relaxjax.sparse_loco(
            adam, "data", max(2, every // 30)
        ),
        f"desynced, {every}": relaxjax.desynced(adam, "data", periods=periods),
    }


def text(record: Record) -> None:
    """A row for each method, all on the same batches."""
    task = language(record)
    steps, rows = (4, 16) if record.tiny else (500, 256)
    for every in (16,) if record.tiny else PERIODS:
        for name, tx in record.some(methods(every)).items():
            record.measure(name, lambda tx=tx: trained(task, tx, steps, rows))


def trained(task: Task, tx: Any, steps: int, rows: int) -> Row:
    """Held-out loss of the mean model, last training loss, and bytes a step."""
    mesh = relaxjax.emulate(WORKERS)
    step = relaxjax.data_parallel(train_step_of(task, tx), mesh, donate=True)
    state = list(relaxjax.init(tx, task.params, mesh))
    batches, losses = task.batches(0, rows), []
    for number in range(steps):
        *state, metrics = step(*state, next(batches))
        if number % 50 == 0 or number == steps - 1:
            losses.append(float(metrics["loss"]))  # and waits for the device
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), task.params)
    return {
        "metric": float(task.metric(relaxjax.consensus(state[0]))),
        "loss": losses[-1],
        "losses": losses,
        "bytes a step": relaxjax.wire_bytes(tx, shapes, mesh),
        "params": int(sum(np.size(x) for x in jax.tree.leaves(task.params))),
        "steps": steps,
        "rows": rows,
    }

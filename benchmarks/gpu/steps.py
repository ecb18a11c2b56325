"""What relaxations cost beside the model: steps of one worker, and of emulated ones.

    transformation   a step with a relaxation on one device, over plain `jax.jit`
    emulated         n workers on one device, over one worker with all rows

A turn is five steps that do not wait for each other, as in a loop. Turns alternate with
their baseline's; a ratio is the median of the pairs.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import relaxjax
from benchmarks.gpu.record import Record, Row
from benchmarks.measure import interleaved, milliseconds, ratio, stepper
from relaxjax import compression
from relaxjax.check._codec_time import codec_time
from relaxjax.tasks import Task, chars, train_step_of

Transformation = optax.GradientTransformation
INSIDE = optax.adamw(1e-3)
STEPS = 5  # of a turn
IN_BYTES = compression.error_feedback(compression.quantize(8))


def language(record: Record) -> Task:
    """The language model: 32 M params, or a small one."""
    return (
        chars(0, width=16, layers=1) if record.tiny else chars(0, width=512, layers=10)
    )


def ahead(reducer: Transformation) -> Transformation:
    """A reducer before AdamW."""
    return optax.chain(reducer, INSIDE)


RELAXED: dict[str, Callable[[], Transformation]] = {
    "all_reduce": lambda: ahead(relaxjax.all_reduce("data")),
    "all_reduce+quantize8": lambda: ahead(
        relaxjax.all_reduce("data", compressor=IN_BYTES)
    ),
    "power_sgd": lambda: ahead(relaxjax.power_sgd("data", rank=4)),
    "one_bit_adam": lambda: relaxjax.one_bit_adam("data", 1e-3, freeze_step=1),
    "diloco": lambda: relaxjax.diloco(INSIDE, "data", 8),
}


def codecs(record: Record) -> None:
    """Encoding and decoding against x + 1, for every compressor."""
    size, rounds = (2**12, 3) if record.tiny else (2**26, 20)
    x = jnp.asarray(np.random.default_rng(0).normal(size=size), jnp.float32)
    for name, make in record.some(compression.COMPRESSORS).items():
        record.measure(
            name, lambda name=name, make=make: codec_time(name, make(), x, rounds)
        )


def transformations(record: Record) -> None:
    """A step of a transformer on one device, with each relaxation."""
    rows, rounds = (4, 5) if record.tiny else (64, 20)
    task = language(record)
    batch = jax.device_put(next(task.batches(0, rows)))
    for name, make in record.some(RELAXED).items():
        record.measure(name, lambda make=make: compared(task, make(), batch, 1, rounds))


def emulated(record: Record) -> None:
    """Workers on one device, each with a model of its own, all rows shared out."""
    rounds, rows = (5, 8) if record.tiny else (20, 2**12)
    task = chars(0, width=16, layers=1)  # 256 of them are to fit
    batch = jax.device_put(next(task.batches(0, rows)))
    for n in (2, 8) if record.tiny else (8, 32, 128, 256):
        tx = ahead(relaxjax.all_reduce("data"))
        record.measure(
            f"{n} workers", lambda n=n, tx=tx: compared(task, tx, batch, n, rounds)
        )


def several(step: Callable[[], Any]) -> Callable[[], Any]:
    """The steps of a turn; the last one is waited for."""

    def turn() -> Any:
        for _ in range(STEPS - 1):
            step()
        return step()

    return turn


def compared(
    task: Task, tx: Transformation, batch: Any, workers: int, rounds: int
) -> Row:
    """Milliseconds of a step, of the plain one, and the ratio of the pairs."""
    mesh = relaxjax.emulate(workers)
    if workers == 1:
        mesh = jax.make_mesh((1,), ("data",), devices=jax.devices()[:1])
    relaxed = relaxjax.data_parallel(train_step_of(task, tx), mesh, donate=True)
    params = jax.tree.map(lambda x: jnp.array(np.array(x)), task.params)
    alone = jax.jit(train_step_of(task, INSIDE), donate_argnums=(0, 1))
    runs = {
        "relaxed": stepper(relaxed, list(relaxjax.init(tx, task.params, mesh)), batch),
        "plain": stepper(alone, [params, INSIDE.init(params)], batch),
    }
    turns = {name: several(run) for name, run in runs.items()}
    seconds = interleaved(turns, rounds)
    found = {
        f"{name} ms": [x / STEPS for x in milliseconds(times)]
        for name, times in seconds.items()
    }
    times = ratio(seconds["relaxed"], seconds["plain"])
    size = sum(x.size for x in jax.tree.leaves(task.params))
    return {"params": size, "ratio": times.median, "pairs": times._asdict(), **found}

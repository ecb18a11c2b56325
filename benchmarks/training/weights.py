"""What codes of sharded weights and of their gradients cost, by seed.

A deep and narrow transformer on characters, FSDP by `relaxjax.fsdp` on eight emulated
workers, AdamW with a warm-up and a cosine: bits per character on held-out text after
the last step. Each code trains from the same seeds as the model without codes.
"""

import itertools
from functools import partial
from typing import Annotated, Any

import jax
import numpy as np
import optax
import typer

import relaxjax
from benchmarks.report import Result, Run, Runs, Table, benchmark
from relaxjax import compression, fsdp
from relaxjax.tasks import chars

WORKERS, ROWS, LAYERS, WIDTH, RATE = 8, 16, 12, 32, 3e-3
PLAIN = "without codes"
_EIGHT, _FOUR = (compression.quantize(bits, block_size=2048) for bits in (8, 4))
CODES = {
    PLAIN: {},
    "weights in 8 bits, gradients in 4": {
        "weights": _EIGHT,
        "gradients": compression.quantize(4),
    },
    "differences in 4 bits": {"weights": _FOUR, "difference": True},
    "weights in 4 bits, no differences": {"weights": _FOUR},
}


@benchmark("codes-of-weights", platform="cpu")
def codes_of_weights(
    run: Run,
    seeds: Runs = 3,
    steps: Annotated[int, typer.Option(min=2, help="Steps of a run.")] = 600,
) -> Result:
    """Sharded weights and gradients in codes: bits a character, beside none."""
    shape = {"workers": WORKERS, "rows": ROWS, "layers": LAYERS, "width": WIDTH}
    result: Result = {"conditions": run.conditions(**shape, rate=RATE), "rows": []}
    plain: list[float] = []
    for name in CODES:
        bits = [trained(name, seed, steps) for seed in range(seeds)]
        plain = plain or bits
        worse = 100 * (np.array(bits) / np.array(plain) - 1)
        result["rows"].append({"codes": name, "bits": bits, "worse, %": worse.tolist()})
        run.save(result)
    heads = ["codes", *(f"seed {seed}" for seed in range(seeds))]
    cells = [[row["codes"], *row["bits"]] for row in result["rows"]]
    table = Table("Bits per character", heads, cells)
    return run.finish(result, tables=[table])


def trained(name: str, seed: int, steps: int) -> float:
    """Bits per character on held-out text of a model that was trained with codes."""
    task = chars(seed, width=WIDTH, layers=LAYERS)
    warm_up = max(1, steps // 12)
    rate = optax.warmup_cosine_decay_schedule(0, RATE, warm_up, steps)
    tx = optax.adamw(rate)
    mesh = relaxjax.emulate(WORKERS)
    loss = fsdp.gathered(task.loss, "data", **CODES[name])
    shards, opt_state = fsdp.init(tx, task.params, mesh)
    state = shards, opt_state, fsdp.init_state(loss, shards, mesh)
    step = relaxjax.data_parallel(partial(_step, tx, loss), mesh)
    for batch in itertools.islice(task.batches(0, ROWS), steps):
        *state, _ = step(*state, batch)
    return float(task.metric(fsdp.whole(state[0])))


def _step(
    tx: Any, loss: fsdp.Gathered, shards: Any, opt_state: Any, owed: Any, batch: Any
) -> Any:
    """A train step, with the loss's own state."""

    def value_of(shards: Any, owed: Any) -> Any:
        return loss(shards, batch, state=owed)

    grads, owed = jax.grad(value_of, argnums=(0, 1))(shards, owed)
    updates, opt_state = tx.update(grads, opt_state, shards)
    return optax.apply_updates(shards, updates), opt_state, owed, {}

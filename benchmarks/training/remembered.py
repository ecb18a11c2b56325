"""An optimizer that remembers params, under relaxations that bring params together.

`schedule_free_sgd` holds z, from which params are made anew. A mean of the params alone
is undone by the next steps, of which `init` warns. Four workers have losses
|w - t_i|^2 / 2 with targets t_i of their own. The optimum of their mean is the mean
target, and what is reported is how far above it the mean loss is: |x - mean t|^2 / 2.

    at the consensus    x of the mean over workers of params and of the state
    at worker 0         x of worker 0's params and state
    spread of z         the largest difference between two workers' z
"""

import warnings
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import typer
from optax import contrib

import relaxjax
from benchmarks.report import Result, Run, Table, benchmark

WORKERS, EVERY, RATE = 4, 8, 0.1
TARGETS = np.array([[1, 0, 0], [0, 2, 0], [0, 0, 3], [-2, -2, -2]], np.float32)


def methods() -> dict[str, Any]:
    """Transformations by their names in the table."""
    sgd = contrib.schedule_free_sgd(RATE)
    both = {"params": EVERY, "z": EVERY}
    return {
        f"desynced, params and z every {EVERY} steps": relaxjax.desynced(
            sgd, "data", periods=both
        ),
        f"local_sgd every {EVERY} steps": optax.chain(
            sgd, relaxjax.local_sgd("data", EVERY)
        ),
        f"diloco every {EVERY} steps": relaxjax.diloco(sgd, "data", EVERY),
        "gossip on a ring": optax.chain(
            sgd, relaxjax.gossip("data", relaxjax.topology.ring(WORKERS))
        ),
    }


@benchmark("remembered", platform="cpu")
def remembered(
    run: Run,
    steps: Annotated[int, typer.Option(min=1, help="Steps of a run.")] = 800,
) -> Result:
    """A schedule-free optimizer under relaxations that let its z meet, or not."""
    rows = [{"method": name} | trained(tx, steps) for name, tx in methods().items()]
    columns = ["method", "at the consensus", "at worker 0", "spread of z"]
    table = Table.of("Losses above the optimum", rows, *columns)
    conditions = run.conditions(
        workers=WORKERS, rate=RATE, optimizer="schedule_free_sgd"
    )
    return run.finish({"conditions": conditions, "rows": rows}, tables=[table])


def trained(tx: Any, steps: int) -> dict[str, float]:
    """What is reported of a transformation after so many steps."""
    mesh = relaxjax.emulate(WORKERS)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "init: the optimizer remembers params")
        params, state = relaxjax.init(tx, jnp.ones(3), mesh)

    def step(params: Any, state: Any, target: Any) -> Any:
        updates, state = tx.update(params - target[0], state, params)
        return optax.apply_updates(params, updates), state, {}

    train = relaxjax.data_parallel(step, mesh)
    for _ in range(steps):
        params, state, _ = train(params, state, TARGETS)
    first = jax.tree.map(lambda x: x[0], (params, state))
    means = relaxjax.consensus((params, state))
    return {
        "at the consensus": above(*means),
        "at worker 0": above(*first),
        "spread of z": relaxjax.spread(optax.tree.get(state, "z")),
    }


def above(params: Any, state: Any) -> float:
    """The mean loss at a worker's evaluation params, over the least."""
    held = optax.tree.get(state, "ScheduleFreeState")
    x = contrib.schedule_free_eval_params(held, params)
    return float(jnp.sum((x - TARGETS.mean(0)) ** 2) / 2)

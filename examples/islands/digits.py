"""Islands on handwritten digits: any of them may be killed, and the run goes on.

relaxjax islands examples/islands/digits.py -n 3 --carrier folder:runs/digits
relaxjax islands status runs/digits
relaxjax islands replay runs/digits examples/islands/digits.py
relaxjax islands replay runs/digits examples/islands/digits.py --emulated

Each island keeps to a pace, so that a dead one lends its processor to nobody and all
meet: 50 steps a second, or STEPS_PER_SECOND (0: as many as it can).
"""

import os

import jax
import optax

from relaxjax import islands, tasks

STEPS = int(os.environ.get("STEPS", "600"))
PACE = float(os.environ.get("STEPS_PER_SECOND", "50")) or None
BATCH = 64

task = tasks.digits(seed=0)
tx = optax.sgd(0.1)


def program() -> islands.Program:
    """What `replay --emulated` trains in one program."""
    return islands.Program(
        task.loss, tx, task.params, lambda seed: task.batches(seed, BATCH)
    )


def main() -> None:
    """Trains as one island."""
    train_step = jax.jit(tasks.train_step_of(task, tx))
    with islands.join(
        task.params,
        sync_every=24,
        fragments=3,
        quorum=2,
        grace=0.5,
        keep=True,
        pace=PACE,
    ) as island:
        params = island.params
        opt_state = tx.init(params)
        batches = task.batches(island.seed, BATCH)
        for _ in island.steps(STEPS):
            params, opt_state, _ = train_step(params, opt_state, next(batches))
            params = island.exchange(params, tokens=BATCH)
        accuracy = float(task.metric(params))
        print(f"version {island.version}, accuracy {accuracy:.3f}", flush=True)


if __name__ == "__main__":
    main()

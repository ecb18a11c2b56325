"""Islands on handwritten digits: any of them may be killed, and the run goes on.

relaxjax islands examples/islands/digits.py -n 3 --carrier folder:runs/digits
relaxjax islands status runs/digits

With STEPS_PER_SECOND each island keeps to a pace, so that a dead one lends its
processor to nobody.
"""

import os
import time

import jax
import optax

from relaxjax import islands, tasks

STEPS = int(os.environ.get("STEPS", "600"))
PACE = float(os.environ.get("STEPS_PER_SECOND", "inf"))
BATCH = 64

task = tasks.digits(seed=0)
tx = optax.sgd(0.1)
train_step = jax.jit(tasks.train_step_of(task, tx))

with islands.join(
    task.params, sync_every=24, fragments=3, quorum=2, grace=0.5, keep=True
) as island:
    params = island.params
    opt_state = tx.init(params)
    batches = task.batches(island.seed, BATCH)
    start = time.monotonic()
    for number, _ in enumerate(island.steps(STEPS), 1):
        params, opt_state, metrics = train_step(params, opt_state, next(batches))
        params = island.exchange(params, tokens=BATCH)
        time.sleep(max(0.0, start + number / PACE - time.monotonic()))
    accuracy = float(task.metric(params))
    print(f"version {island.version}, accuracy {accuracy:.3f}", flush=True)

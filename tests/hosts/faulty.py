"""A training script in which one process meets a fault: `faulty.py FAULT WHO STEP`."""

import os
import signal
import sys
import threading

import jax
import numpy as np
import optax

import relaxjax
from relaxjax import hosts
from tests.hosts import rows

FAULTS = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "freeze": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "hang": lambda: threading.Event().wait(),
    "raise": lambda: {}["lost key"],
    "stop": lambda: os.kill(os.getpid(), signal.SIGTERM),
}


def main(fault: str, who: int, at: int) -> None:
    team = hosts.join()
    with hosts.Watch(team, lost_after=3, stuck_after=8, interval=0.2) as watch:
        mesh = jax.make_mesh((jax.device_count(),), ("data",))
        tx = optax.chain(relaxjax.all_reduce("data"), optax.sgd(0.1))

        def train_step(p, state, batch):
            grads = jax.grad(rows.loss)(p, batch)
            updates, state = tx.update(grads, state, p)
            return optax.apply_updates(p, updates), state, {}

        step = relaxjax.data_parallel(train_step, mesh)
        p, state = relaxjax.init(tx, rows.params(), mesh)
        batch = np.ones((2, 7), np.float32), np.ones((2, 5), np.float32)
        i = 0
        for i in range(10**9):
            if i == at and team.process_id == who:
                FAULTS[fault]()
            if watch.stops_before(i):
                break
            p, state, _ = step(p, state, batch)
            jax.block_until_ready(p)
    print("stopped before", i)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

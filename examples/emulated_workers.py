"""Sixty-four workers on one device: three relaxations of the same training."""

import jax
import optax

import relaxjax
from relaxjax import topology
from relaxjax.tasks import digits

WORKERS, SYNC_EVERY = 64, 8
ADAMW = optax.adamw(3e-3)
GRAPH = topology.one_peer_exponential(WORKERS)
METHODS = {
    "all_reduce": optax.chain(relaxjax.all_reduce("data"), ADAMW),
    "gossip, one peer a step": optax.chain(ADAMW, relaxjax.gossip("data", GRAPH)),
    "local_sgd, every 8": optax.chain(ADAMW, relaxjax.local_sgd("data", SYNC_EVERY)),
}


def main(steps: int = 200) -> dict[str, float]:
    """Trains; returns held-out accuracies of the mean models."""
    mesh, task = relaxjax.emulate(WORKERS), digits(seed=0)
    found = {}
    for name, tx in METHODS.items():

        def train_step(params, opt_state, batch, tx=tx):
            loss, grads = jax.value_and_grad(task.loss)(params, batch)
            updates, opt_state = tx.update(grads, opt_state, params)
            return optax.apply_updates(params, updates), opt_state, {"loss": loss}

        params, opt_state = relaxjax.init(tx, task.params, mesh)
        step = relaxjax.data_parallel(train_step, mesh)
        batches = task.batches(0, 4 * WORKERS)  # four rows for each worker
        for _ in range(steps):
            params, opt_state, _ = step(params, opt_state, next(batches))
        found[name] = float(task.metric(relaxjax.consensus(params)))
        sent = relaxjax.wire_bytes(tx, task.params, mesh, steps=SYNC_EVERY)
        print(
            f"{name:23}  accuracy {found[name]:.3f}  "
            f"{sent / SYNC_EVERY:,.0f} bytes a step  "
            f"spread {relaxjax.spread(params):.2g}"
        )
    return found


if __name__ == "__main__":
    main()

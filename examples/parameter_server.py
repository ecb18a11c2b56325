"""Parameters at eight servers, pulled in TAC order while the first layers compute."""

import jax
import optax

import relaxjax
from relaxjax import ps, schedule
from relaxjax.tasks import digits
from relaxjax.tasks import schedule as rates


def main(steps: int = 200) -> float:
    """Trains; returns the held-out accuracy."""
    mesh = jax.make_mesh((8,), ("data",))
    task = digits(seed=0)
    tx = optax.adamw(rates(task.learning_rate, steps))
    batches = task.batches(0, task.batch_size)

    graph = schedule.Graph.from_loss(task.loss, task.params, next(batches))
    loss_fn = ps.pulled(task.loss, "data", order=schedule.tac(graph), bucket_bytes=1)

    def train_step(shards, opt_state, batch):
        loss, grads = jax.value_and_grad(loss_fn)(shards, batch)
        updates, opt_state = tx.update(grads, opt_state, shards)
        return optax.apply_updates(shards, updates), opt_state, {"loss": loss}

    shards, opt_state = ps.init(tx, task.params, mesh)
    step = relaxjax.data_parallel(train_step, mesh)
    for _ in range(steps):
        shards, opt_state, _ = step(shards, opt_state, next(batches))

    compiled = ps.compiled_order(step, shards, opt_state, next(batches))
    accuracy = float(task.metric(ps.whole(shards)))
    print("pulled in the order", ", ".join(compiled.pulls))
    print(f"held-out accuracy {accuracy:.4f}")
    return accuracy


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)  # emulated, where there is no GPU
    main()

"""A character model on eight workers, its gradient in rank 4."""

import jax
import optax

import relaxjax
from relaxjax.tasks import chars, schedule


def main(steps: int = 300) -> tuple[float, float]:
    """Trains; returns held-out bits per character, and how many times less is sent."""
    mesh = jax.make_mesh((8,), ("data",))
    task = chars(seed=0)

    def train_step(params, opt_state, batch):
        loss, grads = jax.value_and_grad(task.loss)(params, batch)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, {"loss": loss}

    rate = schedule(task.learning_rate, steps)
    tx = optax.chain(relaxjax.power_sgd("data", rank=4), optax.adamw(rate))
    params, opt_state = relaxjax.init(tx, task.params, mesh)
    step = relaxjax.data_parallel(train_step, mesh)

    batches = task.batches(0, task.batch_size)
    for _ in range(steps):
        params, opt_state, _ = step(params, opt_state, next(batches))

    bits = float(task.metric(relaxjax.consensus(params)))
    whole = relaxjax.wire_bytes(relaxjax.all_reduce("data"), task.params, mesh)
    fewer = whole / relaxjax.wire_bytes(tx, task.params, mesh)
    print(f"{task.metric_name} {bits:.3f}, with {fewer:.1f} times fewer bytes")
    return bits, fewer


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)  # emulated, where there is no GPU
    main()

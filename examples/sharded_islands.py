"""Weights sharded inside an island, in codes, and DiLoCo from island to island."""

import jax
import optax

import relaxjax
from relaxjax import compression, fsdp
from relaxjax.tasks import digits, schedule

ISLANDS, DEVICES, EVERY = 2, 4, 10


def main(steps: int = 150) -> float:
    """Trains; returns the held-out accuracy of the common model."""
    mesh = jax.make_mesh((ISLANDS, DEVICES), ("island", "device"))
    task = digits(seed=0)
    loss_fn = fsdp.gathered(
        task.loss,
        "device",
        weights=compression.quantize(8),
        gradients=compression.quantize(4),
    )
    tx = relaxjax.diloco(
        optax.adamw(schedule(task.learning_rate, steps)),
        "island",
        sync_every=EVERY,
        outer=optax.sgd(0.7, momentum=0.5, nesterov=True),
        compressor=compression.error_feedback(compression.quantize(4)),
    )

    def train_step(shards, opt_state, batch):
        loss, grads = jax.value_and_grad(loss_fn)(shards, batch)
        updates, opt_state = tx.update(grads, opt_state, shards)
        return optax.apply_updates(shards, updates), opt_state, {"loss": loss}

    shards, opt_state = fsdp.init(tx, task.params, mesh, over="device")
    step = relaxjax.data_parallel(train_step, mesh)
    batches = task.batches(0, task.batch_size)
    for _ in range(steps):
        shards, opt_state, _ = step(shards, opt_state, next(batches))

    inside = fsdp.sent_bytes(loss_fn, task.params, mesh).total
    across = relaxjax.wire_bytes(tx, shards, mesh)
    held = sum(x[0].size for x in jax.tree.leaves(shards))
    whole = sum(x.size for x in jax.tree.leaves(task.params))
    print(f"each device holds {held:,} of {whole:,} params")
    print(f"and sends {inside:,} bytes a step inside its island, {across:,} across")
    accuracy = float(task.metric(fsdp.whole(shards)))
    print(f"held-out accuracy {accuracy:.4f}")
    return accuracy


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)  # emulated, where there is no GPU
    main()

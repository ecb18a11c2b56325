"""DiLoCo on a character model: eight workers meet seldom, in one bit or in four."""

import jax
import optax

import relaxjax
from relaxjax import compression
from relaxjax.tasks import chars, schedule

CODES = {"1 bit": compression.sign(), "4 bits": compression.quantize(4)}


def main(steps: int = 300, sync_every: int = 10) -> dict[str, tuple[float, float]]:
    """Trains; returns held-out bits per character, and how many times less is sent."""
    mesh = jax.make_mesh((8,), ("data",))
    task = chars(seed=0)
    rate = schedule(task.learning_rate, steps)
    whole = relaxjax.wire_bytes(relaxjax.all_reduce("data"), task.params, mesh)
    found = {}
    for name, code in CODES.items():
        tx = relaxjax.diloco(
            optax.adamw(rate),
            "data",
            sync_every,
            outer=optax.sgd(0.7, momentum=0.5, nesterov=True),
            compressor=compression.error_feedback(code),
        )
        sent = relaxjax.wire_bytes(tx, task.params, mesh, steps=sync_every)
        found[name] = trained(tx, task, mesh, steps), sync_every * whole / sent
        bits, fewer = found[name]
        print(f"{name}: {task.metric_name} {bits:.3f}, {fewer:.0f} times fewer bytes")
    return found


def trained(tx: optax.GradientTransformation, task, mesh, steps: int) -> float:
    """Held-out bits per character of the common model."""

    def train_step(params, opt_state, batch):
        loss, grads = jax.value_and_grad(task.loss)(params, batch)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, {"loss": loss}

    params, opt_state = relaxjax.init(tx, task.params, mesh)
    step = relaxjax.data_parallel(train_step, mesh)
    batches = task.batches(0, task.batch_size)
    for _ in range(steps):
        params, opt_state, _ = step(params, opt_state, next(batches))
    return float(task.metric(relaxjax.consensus(params)))


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)  # emulated, where there is no GPU
    main()

"""Handwritten digits on eight workers, with 1-bit Adam in place of AdamW."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import relaxjax


class Classifier(nnx.Module):
    """A perceptron with one hidden layer."""

    def __init__(self, rngs: nnx.Rngs):
        self.hidden = nnx.Linear(64, 128, rngs=rngs)
        self.output = nnx.Linear(128, 10, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        """Logits of the ten digits."""
        return self.output(nnx.relu(self.hidden(images)))


def main() -> float:
    """Trains, and returns the held-out accuracy."""
    mesh = jax.make_mesh((8,), ("data",))
    images, labels = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(
        np.float32(images / 16), labels, test_size=360, stratify=labels, random_state=0
    )
    graph, params = nnx.split(Classifier(nnx.Rngs(0)), nnx.Param)

    def loss_fn(params, batch):
        logits = nnx.merge(graph, params)(batch["image"])
        return optax.softmax_cross_entropy_with_integer_labels(
            logits, batch["label"]
        ).mean()

    def train_step(params, opt_state, batch):
        loss, grads = jax.value_and_grad(loss_fn)(params, batch)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, {"loss": loss}

    tx = relaxjax.one_bit_adam("data", 3e-3, freeze_step=75)
    params, opt_state = relaxjax.init(tx, params, mesh)
    step = relaxjax.data_parallel(train_step, mesh)

    rng = np.random.default_rng(0)
    for _ in range(300):
        rows = rng.integers(len(train_x), size=128)
        batch = {"image": train_x[rows], "label": train_y[rows]}
        params, opt_state, _ = step(params, opt_state, batch)

    model = nnx.merge(graph, relaxjax.consensus(params))
    correct = jnp.argmax(model(jnp.asarray(test_x)), axis=-1) == jnp.asarray(test_y)
    accuracy = float(correct.mean())
    print(f"held-out accuracy {accuracy:.4f}")
    return accuracy


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)  # emulated, where there is no GPU
    main()

"""Handwritten digits on eight workers; the model is a dict of arrays."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import relaxjax


def start(seed: int, sizes: tuple[int, ...] = (64, 128, 10)) -> dict[str, np.ndarray]:
    """Params of a perceptron: a weight and a bias for each layer."""
    rng = np.random.default_rng(seed)
    params = {}
    for i, (fan_in, fan_out) in enumerate(pairwise(sizes)):
        weight = rng.normal(0, fan_in**-0.5, (fan_in, fan_out))
        params[f"weight{i}"] = weight.astype(np.float32)
        params[f"bias{i}"] = np.zeros(fan_out, np.float32)
    return params


def logits(params, images):
    """Logits of the ten digits."""
    hidden = jax.nn.relu(images @ params["weight0"] + params["bias0"])
    return hidden @ params["weight1"] + params["bias1"]


def train_step(params, opt_state, batch):
    """A train step, written for one device."""

    def loss_fn(params):
        found = logits(params, batch["image"])
        return optax.softmax_cross_entropy_with_integer_labels(
            found, batch["label"]
        ).mean()

    loss, grads = jax.value_and_grad(loss_fn)(params)
    updates, opt_state = tx.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, {"loss": loss}


tx = optax.chain(relaxjax.all_reduce("data"), optax.adamw(3e-3))


def main(steps: int = 300) -> float:
    """Trains, and returns the held-out accuracy."""
    mesh = jax.make_mesh((8,), ("data",))
    images, labels = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(
        np.float32(images / 16), labels, test_size=360, stratify=labels, random_state=0
    )
    params, opt_state = relaxjax.init(tx, start(seed=0), mesh)
    step = relaxjax.data_parallel(train_step, mesh)

    rng = np.random.default_rng(0)
    for _ in range(steps):
        rows = rng.integers(len(train_x), size=128)
        batch = {"image": train_x[rows], "label": train_y[rows]}
        params, opt_state, _ = step(params, opt_state, batch)

    found = logits(relaxjax.consensus(params), test_x).argmax(axis=-1)
    accuracy = float(jnp.mean(found == test_y))
    print(f"held-out accuracy {accuracy:.4f}")
    return accuracy


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)  # emulated, where there is no GPU
    main()

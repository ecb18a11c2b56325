"""Ten workers on a ring, each with the images of one digit alone.

Gossip at a constant learning rate comes to rest beside what all data ask for, since
neighbors pull in different directions; exact diffusion takes that bias out. All-reduce
is what both are compared with.
"""

from typing import Any

import jax
import numpy as np
import optax
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import relaxjax
from relaxjax import topology

WORKERS, ROWS, RATE = 10, 120, 0.2
RING = topology.lazy(topology.ring(WORKERS))
SGD = optax.sgd(RATE)
METHODS = {
    "all_reduce": optax.chain(relaxjax.all_reduce("data"), SGD),
    "gossip": optax.chain(SGD, relaxjax.gossip("data", RING)),
    "exact_diffusion": optax.chain(SGD, relaxjax.exact_diffusion("data", RING)),
}


def loss_fn(params: Any, images: Any, labels: Any) -> jax.Array:
    """The loss of a linear model with a little decay: there is one best model."""
    logits = images @ params["weight"] + params["bias"]
    nats = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
    return nats + 5e-4 * optax.tree.norm(params, squared=True)


def main(steps: int = 1000) -> dict[str, tuple[float, float]]:
    """Trains; returns loss over all data, and held-out accuracy, of the mean model."""
    images, labels = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(
        np.float32(images / 16), labels, test_size=360, stratify=labels, random_state=0
    )
    own = np.concatenate([np.flatnonzero(train_y == k)[:ROWS] for k in range(WORKERS)])
    batch = train_x[own], train_y[own]  # split in ten: a digit for each worker
    mesh = relaxjax.emulate(WORKERS)
    zeros = {"weight": np.zeros((64, 10), np.float32), "bias": np.zeros(10, np.float32)}
    found = {}
    for name, tx in METHODS.items():

        def train_step(params, opt_state, batch, tx=tx):
            loss, grads = jax.value_and_grad(loss_fn)(params, *batch)
            updates, opt_state = tx.update(grads, opt_state, params)
            return optax.apply_updates(params, updates), opt_state, {"loss": loss}

        params, opt_state = relaxjax.init(tx, zeros, mesh)
        step = relaxjax.data_parallel(train_step, mesh)
        for _ in range(steps):
            params, opt_state, _ = step(params, opt_state, batch)
        model = relaxjax.consensus(params)
        right = (test_x @ model["weight"] + model["bias"]).argmax(axis=-1) == test_y
        found[name] = float(loss_fn(model, *batch)), float(right.mean())
        print(
            f"{name:15}  loss {found[name][0]:.4f}  accuracy {found[name][1]:.3f}  "
            f"spread {relaxjax.spread(params):.2g}"
        )
    return found


if __name__ == "__main__":
    main()

"""Handwritten digits on one device, with flax.linen and its `TrainState`."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax.training.train_state import TrainState
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split


class Classifier(nn.Module):
    """A perceptron with one hidden layer."""

    @nn.compact
    def __call__(self, images: jax.Array) -> jax.Array:
        """Logits of the ten digits."""
        return nn.Dense(10)(nn.relu(nn.Dense(128)(images)))


def main() -> float:
    """Trains, and returns the held-out accuracy."""
    images, labels = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(
        np.float32(images / 16), labels, test_size=360, stratify=labels, random_state=0
    )
    model = Classifier()
    params = model.init(jax.random.key(0), train_x[:1])["params"]

    def train_step(state, batch):
        def loss_fn(params):
            logits = state.apply_fn({"params": params}, batch["image"])
            return optax.softmax_cross_entropy_with_integer_labels(
                logits, batch["label"]
            ).mean()

        loss, grads = jax.value_and_grad(loss_fn)(state.params)
        return state.apply_gradients(grads=grads), {"loss": loss}

    tx = optax.adamw(3e-3)
    state = TrainState.create(apply_fn=model.apply, params=params, tx=tx)
    step = jax.jit(train_step)

    rng = np.random.default_rng(0)
    for _ in range(300):
        rows = rng.integers(len(train_x), size=128)
        batch = {"image": train_x[rows], "label": train_y[rows]}
        state, _ = step(state, batch)

    logits = state.apply_fn({"params": state.params}, test_x)
    correct = jnp.argmax(logits, axis=-1) == jnp.asarray(test_y)
    accuracy = float(correct.mean())
    print(f"held-out accuracy {accuracy:.4f}")
    return accuracy


if __name__ == "__main__":
    main()

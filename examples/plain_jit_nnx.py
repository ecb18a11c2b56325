"""A plain `jit` program of a flax.nnx model with sharded weights, in 4-bit codes."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import PartitionSpec as P
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import relaxjax
from relaxjax import compression

AT_REST, ROWS = P("fsdp", None), P(("data", "fsdp"))  # weights, and examples
CODE = compression.error_feedback(compression.quantize(4))


class Classifier(nnx.Module):
    """A perceptron for the ten digits."""

    def __init__(self, rngs: nnx.Rngs):
        self.first = nnx.Linear(64, 128, use_bias=False, rngs=rngs)
        self.second = nnx.Linear(128, 10, use_bias=False, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        """Logits of the ten digits."""
        return self.second(jax.nn.relu(self.first(images)))


def start():
    """The model's graph, and its params."""
    return nnx.split(Classifier(nnx.Rngs(0)), nnx.Param)


graph, _ = nnx.eval_shape(start)
tx = optax.chain(relaxjax.all_reduce("data", compressor=CODE), optax.adamw(3e-3))


def loss_fn(params, batch):
    """Each device gathers the weights, and has its rows; as without relaxjax."""
    whole = jax.tree.map(lambda w: jax.reshard(w, P(None, None)), params)
    images, labels = batch
    found = nnx.merge(graph, whole)(images)
    return optax.softmax_cross_entropy_with_integer_labels(found, labels).mean()


@jax.jit
def train_step(params, opt_state, batch):
    """The user's step; `unreduced` is the one line that is added."""
    loss, grads = jax.value_and_grad(loss_fn)(relaxjax.unreduced(params, "data"), batch)
    updates, opt_state = tx.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss


def main(steps: int = 300) -> float:
    """Trains, and returns the held-out accuracy."""
    explicit = (jax.sharding.AxisType.Explicit,) * 2
    mesh = jax.make_mesh((4, 2), ("data", "fsdp"), axis_types=explicit)
    images, labels = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(
        np.float32(images / 16), labels, test_size=360, stratify=labels, random_state=0
    )
    rng = np.random.default_rng(0)
    with jax.set_mesh(mesh):
        params = jax.device_put(start()[1], AT_REST)
        opt_state = tx.init(params)
        for _ in range(steps):
            rows = rng.integers(len(train_x), size=128)
            batch = jax.device_put((train_x[rows], train_y[rows]), ROWS)
            params, opt_state, loss = train_step(params, opt_state, batch)
            jax.block_until_ready(loss)

    model = nnx.merge(graph, jax.device_get(params))
    found = model(jnp.asarray(test_x)).argmax(axis=-1)
    accuracy = float(jnp.mean(found == test_y))
    print(f"held-out accuracy {accuracy:.4f}")
    print(
        "weights lie as", ", ".join(str(jax.typeof(w)) for w in jax.tree.leaves(params))
    )
    return accuracy


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)  # emulated, where there is no GPU
    main()

"""The perceptron in plain JAX, on the digits of `benchmarks.islands.data`."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from benchmarks.islands.data import Rows


def loss(params: Any, rows: Rows) -> jax.Array:
    """Mean cross-entropy in nats."""
    logits = logits_of(params, rows.images)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, rows.labels)
    return losses.mean()


def accuracy(params: Any, rows: Rows) -> jax.Array:
    """Share of the rows that are named rightly."""
    return jnp.mean(logits_of(params, rows.images).argmax(-1) == rows.labels)


def logits_of(params: Any, images: Any) -> jax.Array:
    """float32[rows, 10]."""
    x = jax.nn.relu(images @ params["w0"] + params["b0"])
    x = jax.nn.relu(x @ params["w1"] + params["b1"])
    return x @ params["w2"] + params["b2"]


def train_step(params: Any, opt_state: Any, rows: Rows, *, tx: Any) -> Any:
    """Params, state and loss after a step."""
    value, grads = jax.value_and_grad(loss)(params, rows)
    updates, opt_state = tx.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, {"loss": value}

"""All runs of a method at once: over learning rates, folds, seeds and alphas.

A perceptron of one hidden layer, from a start that all workers share; each worker draws
its batches from its own rows. A rate stays as it is, for a rate that falls hides bias.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from benchmarks.training.heterogeneity_data import LABELS, Splits
from benchmarks.training.heterogeneity_methods import AXIS
from relaxjax.workers._consensus import distance_of

BATCH = 8  # of each worker
WIDTH = 32
Make = Callable[[Any, int], optax.GradientTransformation]
"""From a learning rate and the number of workers to the transformation."""


class Trained(NamedTuple):
    """What came of the runs; each float[splits, rates].

    Attributes:
      loss: loss of the workers' consensus, over all that they trained on.
      accuracy: accuracy of the consensus, held out.
      distance: distance from the consensus (`relaxjax.consensus_distance`).
    """

    loss: np.ndarray
    accuracy: np.ndarray
    distance: np.ndarray


def train(make: Make, rates: np.ndarray, splits: Splits, steps: int) -> Trained:
    """Trains with every rate on every split, in one program."""

    def one(rate: jax.Array, split: Splits) -> tuple[jax.Array, ...]:
        models = _models(make, rate, split, steps)
        mean = jax.tree.map(lambda x: x.mean(axis=0), models)
        images = split.images.reshape(-1, split.images.shape[-1])
        hits = logits_of(mean, split.held_images).argmax(axis=-1) == split.held_labels
        return (
            loss_of(mean, images, split.labels.ravel()),
            hits.sum() / (split.held_labels >= 0).sum(),
            distance_of(jax.tree.leaves(models)),
        )

    over_rates = jax.vmap(one, in_axes=(0, None))
    fields = jax.jit(jax.vmap(over_rates, in_axes=(None, 0)))(rates, splits)
    return Trained(*(np.asarray(x, np.float64) for x in fields))


def _models(make: Make, rate: jax.Array, split: Splits, steps: int) -> Any:
    """The models of all workers after training."""
    workers, rows = split.labels.shape
    tx: Any = make(rate, workers)
    key = jax.random.key(split.seeds)

    def worker(images: Any, labels: Any, place: jax.Array) -> Any:
        worker_key = jax.random.fold_in(key, place)

        def step(carry: Any, number: jax.Array) -> tuple[Any, None]:
            params, state = carry
            drawn = jax.random.fold_in(worker_key, number)
            picked = jax.random.randint(drawn, (BATCH,), 0, rows)
            gradient = jax.grad(loss_of)(params, images[picked], labels[picked])
            updates, state = tx.update(gradient, state, params)
            return (optax.apply_updates(params, updates), state), None

        params = start(key)
        carry = params, tx.init(params)
        return lax.scan(step, carry, jnp.arange(steps))[0][0]

    places = jnp.arange(workers)
    return jax.vmap(worker, axis_name=AXIS)(split.images, split.labels, places)


def start(key: jax.Array) -> list[tuple[jax.Array, jax.Array]]:
    """He's initialization."""
    sizes = (64, WIDTH, LABELS)
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        (jax.random.normal(k, (a, b)) * np.sqrt(2 / a), jnp.zeros(b))
        for k, a, b in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]


def logits_of(params: Any, images: Any) -> jax.Array:
    """float32[rows, labels]."""
    (w, b), (v, c) = params
    return jax.nn.relu(images @ w + b) @ v + c


def loss_of(params: Any, images: Any, labels: Any) -> jax.Array:
    """Mean cross-entropy in nats."""
    logits = logits_of(params, images)
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

"""DiLoCo by a rule of `relaxjax.merges`, for many data and rates in one program.

From the anchor a, worker i takes s_i steps of SGD on its own rows, to x_i, and then

    D = rule of (a - x_i) with weights s_i,    a <- a + O(D)

with O the outer SGD with Nesterov momentum. Contributions are rows in memory, so that
each merge is computed once, and not by every emulated worker.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from benchmarks.training.heterogeneity_data import Splits
from benchmarks.training.heterogeneity_training import (
    BATCH,
    logits_of,
    loss_of,
    start,
)

LIMIT = 10.0
"""That of islands."""
Merge = Callable[[Any, jax.Array], Any]
"""From rows of contributions [n, ...] and their weights [n] to what they become."""


class Knobs(NamedTuple):
    """What is tuned; each float[settings].

    Attributes:
      rate: learning rate of the workers' SGD.
      momentum: of the outer SGD.
    """

    rate: Any
    momentum: Any


class Ended(NamedTuple):
    """What came of the runs; each float[splits, settings].

    Attributes:
      loss: of the common model, over all that the workers trained on.
      accuracy: of the common model, held out.
      longest: the most times the median that a contribution was long, in any merge.
      beyond: share of contributions that were longer than `LIMIT` times the median.
    """

    loss: Any
    accuracy: Any
    longest: Any
    beyond: Any


def train(
    merge: Merge, knobs: Knobs, splits: Splits, rounds: int, steps: np.ndarray
) -> Ended:
    """Trains in every setting on every split; `steps` [workers] in each round."""

    def one(knobs: Knobs, split: Splits) -> Ended:
        model, times = _common_model(merge, knobs, split, rounds, steps)
        images = split.images.reshape(-1, split.images.shape[-1])
        hits = logits_of(model, split.held_images).argmax(-1) == split.held_labels
        return Ended(
            loss_of(model, images, split.labels.ravel()),
            hits.sum() / (split.held_labels >= 0).sum(),
            times.max(),
            jnp.mean(times > LIMIT),
        )

    every = jax.vmap(jax.vmap(one, in_axes=(0, None)), in_axes=(None, 0))
    knobs = jax.tree.map(jnp.float32, knobs)
    return Ended(*(np.asarray(x, np.float64) for x in jax.jit(every)(knobs, splits)))


def _common_model(
    merge: Merge, knobs: Knobs, split: Splits, rounds: int, steps: np.ndarray
) -> tuple[Any, jax.Array]:
    """The anchor after so many rounds, and lengths over their median in each."""
    key, places = jax.random.key(split.seeds), jnp.arange(len(steps))
    outer = optax.sgd(0.7, knobs.momentum, nesterov=True)
    anchor = start(key)

    def round_of(carry: Any, number: jax.Array) -> tuple[Any, jax.Array]:
        anchor, state = carry
        keys = jax.vmap(lambda place: jax.random.fold_in(key, place))(places)
        keys = jax.vmap(lambda k: jax.random.fold_in(k, number))(keys)
        local = jax.vmap(lambda *own: _local(anchor, knobs.rate, int(max(steps)), *own))
        models = local(keys, split.images, split.labels, jnp.asarray(steps))
        moves = jax.tree.map(lambda a, x: a - x, anchor, models)
        merged = merge(moves, jnp.asarray(steps, jnp.float32))
        updates, state = outer.update(merged, state, anchor)
        return (optax.apply_updates(anchor, updates), state), times_the_median(moves)

    carry = anchor, outer.init(anchor)
    (anchor, _), times = lax.scan(round_of, carry, jnp.arange(rounds))
    return anchor, times


def _local(
    params: Any, rate: Any, most: int, key: Any, images: Any, labels: Any, steps: Any
) -> Any:
    """A worker's model after its own steps, of at most so many."""

    def step(params: Any, number: jax.Array) -> tuple[Any, None]:
        drawn = jax.random.fold_in(key, number)
        picked = jax.random.randint(drawn, (BATCH,), 0, len(labels))
        gradient = jax.grad(loss_of)(params, images[picked], labels[picked])
        on = jnp.where(number < steps, rate, 0)
        return jax.tree.map(lambda x, g: x - on * g, params, gradient), None

    return lax.scan(step, params, jnp.arange(most))[0]


def times_the_median(moves: Any) -> jax.Array:
    """Lengths of contributions over their median."""
    squares = [jnp.square(x).reshape(len(x), -1).sum(1) for x in jax.tree.leaves(moves)]
    lengths = jnp.sqrt(sum(squares))
    return lengths / jnp.median(lengths)

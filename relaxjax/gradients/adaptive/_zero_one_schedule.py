"""Rounds of local steps, and a variance that is refreshed from time to time.

Source: Lu et al. 2022 (0/1 Adam), algorithm 1, lines 4 to 9 and its two schedules; the
symbols are those of `_zero_one_adam`:

    at some steps:   v = b2 v + (1 - b2) mean_i(g_i)^2,  k = k + 1
    w_t = lr_t / (1 - b1^t),  u_i = u_i + w_t m_i,  W = W + w_t,  R = R + lr_t

Cost: what the mean gradient's exchange sends, at each refresh.
"""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from relaxjax._core._cond import when
from relaxjax._core._merge_rules import EQUAL, MEAN

_TINY_RATE = 1e-20  # stands for a learning rate of 0, since W divides


class Variance(NamedTuple):
    """The variance, and when it is refreshed.

    Attributes:
      nu: v, float32, like the params, equal on all workers.
      renewals: k, int32.
      wait: int32, steps until the next refresh.
    """

    nu: Annotated[Any, EQUAL]
    renewals: Annotated[jax.Array, EQUAL]
    wait: Annotated[jax.Array, EQUAL]


class Round(NamedTuple):
    """What has happened since the last synchronization.

    Attributes:
      steps: int32.
      moved: u_i, float32, like the params.
      weight: W, float32.
      rate: R, float32.
      examples: the sum of this worker's weights, float32.
    """

    steps: Annotated[jax.Array, EQUAL]
    moved: Annotated[Any, MEAN]
    weight: Annotated[jax.Array, EQUAL]
    rate: Annotated[jax.Array, EQUAL]
    examples: Annotated[jax.Array, MEAN]


def new_variance(zeros: Any) -> Variance:
    """The variance before its first refresh, which is due at once."""
    return Variance(zeros, jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))


def new_round(zeros: Any) -> Round:
    """The start of a round."""
    numbers = (jnp.zeros((), jnp.float32) for _ in range(3))
    return Round(jnp.zeros((), jnp.int32), zeros, *numbers)


def refresh_variance(
    variance: Variance, mean: Callable[[], Any], b2: float, doubling: int
) -> Variance:
    """The variance with the mean gradient, if its time has come."""
    v, k, wait = variance
    due = wait == 0
    v = when(due, lambda v: optax.tree.update_moment(mean(), v, b2, 2), v)
    k = k + due.astype(jnp.int32)
    return Variance(v, k, jnp.where(due, interval(k, doubling), wait) - 1)


def interval(done: jax.Array, doubling: int) -> jax.Array:
    """1, doubled each time `doubling` more are done; at most 2^30."""
    return jnp.left_shift(1, jnp.minimum(done // min(doubling, 2**31 - 1), 30))


def round_is_over(now: Round, done: jax.Array, doubling: int, most: int) -> jax.Array:
    """Whether the round has all its steps, at most `most`, `done` steps after T."""
    return now.steps >= jnp.minimum(interval(done, doubling), min(most, 2**30))


def accumulate_step(
    now: Round, m: Any, rate: Any, corrected: jax.Array, weight: Any
) -> Round:
    """u_i, W and R after one more local step, and its number of examples or 1."""
    rate = jnp.maximum(jnp.asarray(rate, jnp.float32), _TINY_RATE)
    w = rate / jnp.asarray(corrected, jnp.float32)
    moved = jax.tree.map(lambda u, m: u + w * m, now.moved, m)
    examples = now.examples + jnp.asarray(1 if weight is None else weight, jnp.float32)
    return Round(now.steps + 1, moved, now.weight + w, now.rate + rate, examples)

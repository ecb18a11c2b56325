"""State carried into another period: after a resume, or a new `tx` in the loop.

Methods whose models meet go on meeting, whatever step of a round the state stands at.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax._core._relaxation import Training
from relaxjax._names import parse

SGD = optax.sgd(1.0)
METHODS: dict[str, Callable[[int], Any]] = {
    "sparta": lambda h: optax.chain(SGD, relaxjax.sparta("data", 1.0, every=h)),
    "desynced": lambda h: relaxjax.desynced(SGD, "data", periods={"params": h}),
    "local_sgd": lambda h: optax.chain(SGD, relaxjax.local_sgd("data", h)),
    "diloco": lambda h: relaxjax.diloco(SGD, "data", h, outer=SGD),
    "slow_momentum": lambda h: optax.chain(
        SGD, relaxjax.slow_momentum("data", h, momentum=0.0)
    ),
    "post_local_sgd": lambda h: relaxjax.post_local_sgd(SGD, "data", h, 0),
    "hierarchical_local_sgd": lambda h: optax.chain(
        SGD, relaxjax.hierarchical_local_sgd({h: "data"})
    ),
    "asynchronous_average": lambda h: optax.chain(
        SGD, relaxjax.asynchronous_average("data", h, delay=1)
    ),
    "streaming_diloco": lambda h: relaxjax.streaming_diloco(
        SGD, "data", h, outer=SGD, fragments=1, overlap=1
    ),
    "decoupled_diloco": lambda h: relaxjax.decoupled_diloco(
        SGD, "data", sync_every=h, fragments=1, overlap=1, merge="mean", outer=SGD
    ),
    "gossip": lambda h: optax.chain(
        SGD, relaxjax.gossip("data", relaxjax.topology.complete(3), every=h)
    ),
    "sparse_loco": lambda h: relaxjax.sparse_loco(SGD, "data", h, density=1.0),
    "eager_diloco": lambda h: relaxjax.eager_diloco(SGD, "data", h, outer=SGD),
    "accumulate": lambda h: relaxjax.accumulate(
        optax.chain(relaxjax.all_reduce("data"), SGD), h
    ),
}
SETTLES = [*METHODS][:11]  # without further updates, all models become their mean
CHANGES = [(6, 2), (5, 3), (2, 4), (4, 8)]
WORKERS, START = 3, 5.0


@cache
def step_of(name: str, period: int) -> tuple[Any, Any]:
    tx = METHODS[name](period)
    update = jax.vmap(tx.update, axis_name="data")

    def step(gradient, state, x):
        updates, state = update(gradient, state, x)
        return optax.apply_updates(x, updates), state

    return jax.vmap(tx.init, axis_name="data"), jax.jit(step)


def gradients(steps: int, worker_1: float = 0.0, start: int = 0) -> np.ndarray:
    """Only the first step moves; worker 1 goes on from `start` if it is told to."""
    g = np.zeros((steps, WORKERS, 2), np.float32)
    g[0] = [[1.0, 2.0], [3.0, -1.0], [8.0, 0.5]]
    g[start:, 1] += worker_1
    return g


def train(name: str, periods: tuple[int, int], swap: int, data: np.ndarray) -> Any:
    """All models after each step; the period changes before step `swap`."""
    x, seen = jnp.full((WORKERS, 2), START), []
    init, step = step_of(name, periods[0])
    state = init(x)
    for i, g in enumerate(data):
        if i == swap:
            _, step = step_of(name, periods[1])
        x, state = step(jnp.asarray(g), state, x)
        seen.append(np.asarray(x))
    return np.stack(seen)


@pytest.mark.long
@pytest.mark.few(3)
@pytest.mark.parametrize("periods", CHANGES, ids=str)
@pytest.mark.parametrize("name", METHODS)
def test_workers_go_on_hearing_of_each_other(name, periods):
    for swap in range(1, periods[0] + 1):
        steps = swap + 3 * periods[1]
        alone = train(name, periods, swap, gradients(steps))
        moved = train(name, periods, swap, gradients(steps, 0.25, swap))
        assert (alone[-1, 0] != moved[-1, 0]).all(), swap


@pytest.mark.few(6)
@pytest.mark.parametrize("periods", CHANGES, ids=str)
@pytest.mark.parametrize("name", SETTLES)
def test_nothing_is_averaged_twice(name, periods):
    mean = START - gradients(1)[0].mean(0)
    for swap in range(1, periods[0] + 1):
        found = train(name, periods, swap, gradients(swap + 2 * periods[1]))[-1]
        np.testing.assert_allclose(found, [mean] * WORKERS, atol=1e-5)


def test_a_named_slow_momentum_takes_the_rate_of_the_run():
    """SlowMo divides how far a round has moved by the rate that it moved at."""
    rate = optax.cosine_decay_schedule(0.1, 12)
    training = Training(optax.sgd(rate), rate, 12, 2)
    named = parse("slow_momentum").build("data", training, sync_every=3)
    made = relaxjax.slow_momentum("data", 3, learning_rate=rate)
    grads = jnp.array([[1.0, 2.0], [3.0, -4.0]])

    def run(tx: Any, g: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            x, state = carry
            updates, state = tx.update(g + x, state, x)
            return (optax.apply_updates(x, updates), state), x

        x = jnp.zeros(2)
        return jax.lax.scan(step, (x, tx.init(x)), length=12)[1]

    found, expected, constant = (
        jax.vmap(lambda g, tx=tx: run(tx, g), axis_name="data")(grads)
        for tx in (
            named,
            optax.chain(optax.sgd(rate), made),
            optax.chain(optax.sgd(rate), relaxjax.slow_momentum("data", 3)),
        )
    )
    np.testing.assert_array_equal(found, expected)
    assert np.abs(found - constant).max() > 1e-3

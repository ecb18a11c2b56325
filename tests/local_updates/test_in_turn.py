"""Names whose workers arrive by turns: the table, and what a round of it sends."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import asynchronous_diloco, delayed_nesterov, heloco, wire_bytes
from relaxjax._core._relaxation import Training
from relaxjax._names import parse
from relaxjax.local_updates._rows import _turns


def built(name: str, workers: int, every: int) -> Any:
    training = Training(optax.sgd(0.1), 0.1, 100, workers)
    return parse(name).build("data", training, sync_every=every)


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
@pytest.mark.parametrize("every", [1, 2, 5, 8])
def test_each_worker_arrives_once_in_a_round_and_the_last_at_its_end(workers, every):
    table = _turns(workers, every)
    here = [row[row >= 0].tolist() for row in table]
    assert list(itertools.chain(*here)) == list(range(workers))
    assert here[-1][-1] == workers - 1
    counts = [len(row) for row in here]
    assert max(counts) - min(counts) <= 1, "as even as whole steps allow"


@pytest.mark.long
@pytest.mark.parametrize("name", ["asynchronous_diloco", "heloco"])
def test_the_name_is_the_line_that_the_docs_give(name):
    arrivals = [[-1], [0], [-1], [1], [2]]
    outer: Any = delayed_nesterov(0.7, every=3)
    if name == "heloco":
        outer = heloco(0.7, weights=1 / 3)
    tx: Any = asynchronous_diloco(optax.sgd(0.1), "data", arrivals, outer)
    target = jnp.asarray(np.random.default_rng(0).normal(size=(3, 4)), jnp.float32)

    def worker(tx: Any, target: jax.Array) -> jax.Array:
        x = jnp.zeros_like(target)
        state, seen = tx.init(x), []
        for _ in range(6):
            u, state = tx.update(x - target, state, x)
            x = x + u
            seen.append(x)
        return jnp.stack(seen)

    found, expected = (
        jax.vmap(lambda t, m=m: worker(m, t), axis_name="data")(target)
        for m in (built(name, 3, 5), tx)
    )
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("name", ["asynchronous_diloco", "heloco"])
def test_a_round_sends_an_all_reduce_for_each_worker(name):
    params = {"w": jnp.zeros((2, 5))}
    mesh = relaxjax.emulate(4)
    sent = wire_bytes(built(name, 4, 8), params, mesh, steps=8)
    one = 6 * 4 * 3 + 6 * 4  # 2 (n - 1) ceil(10 / n) floats, and a weight
    assert sent == 4 * one

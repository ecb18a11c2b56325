"""SparseLoCo against a list of workers, and its bytes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import emulate
from relaxjax.tasks import TASKS
from tests import helpers
from tests.helpers import mesh_of, pulled, targets_of

RATE, STEPS, EVERY, DECAY, ALPHA = 0.1, 30, 3, 0.9, 0.8
SIZE, CHUNK, KEPT = 40, 16, 4  # the last chunk has eight


def coded(p: np.ndarray) -> np.ndarray:
    """The largest of each chunk, as -1, 0 or 1 times the largest of all."""
    out = np.zeros_like(p)
    places = [
        first + i
        for first in range(0, len(p), CHUNK)
        for i in np.argsort(-np.abs(p[first : first + CHUNK]))[:KEPT]
    ]
    most = np.abs(p[places]).max()
    out[places] = np.rint(p[places] / most) * most
    return out


def reference(targets: np.ndarray) -> list[np.ndarray]:
    n, d = targets.shape
    xs, a = [np.zeros(d) for _ in range(n)], np.zeros(d)
    lost, seen = [np.zeros(d) for _ in range(n)], []
    for step in range(1, STEPS + 1):
        xs = [x - RATE * (x - target) for x, target in zip(xs, targets, strict=True)]
        if step % EVERY == 0:
            sent = []
            for i in range(n):
                p = DECAY * lost[i] + a - xs[i]
                sent.append(coded(p))
                lost[i] = p - sent[i]
            a = a - ALPHA * sum(sent) / n
            xs = [a] * n
        seen.append(np.stack(xs))
    return seen


@pytest.mark.few(2)
@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_equals_a_list_of_workers(n):
    tx = relaxjax.sparse_loco(
        optax.sgd(RATE),
        "data",
        EVERY,
        density=KEPT / CHUNK,
        chunk_size=CHUNK,
        decay=DECAY,
        outer_learning_rate=ALPHA,
    )
    targets = targets_of(n, SIZE)
    expected = reference(targets)
    for mesh in (emulate(n), mesh_of(n)):
        found = pulled(tx, targets, mesh, STEPS)
        for (x, _), ref in zip(found, expected, strict=True):
            np.testing.assert_allclose(x, ref, atol=2e-5)


def test_that_sends_everything_exactly_enough_is_local_sgd():
    """All elements, eight bits of equal values: nothing is lost but a rounding."""
    targets = np.ones((4, 1)) * targets_of(1, SIZE)
    tx = relaxjax.sparse_loco(optax.sgd(RATE), "data", 2, density=1.0, bits=8)
    same = optax.chain(optax.sgd(RATE), relaxjax.local_sgd("data", 2))
    (x, _), (y, _) = (pulled(t, targets, emulate(4), 12)[-1] for t in (tx, same))
    np.testing.assert_allclose(x, y, atol=0.02)


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("where", [mesh_of, emulate])
def test_bytes_at_its_defaults(where):
    """1/900 of a ring each step, for the leaves of a real model."""
    params = jax.tree.map(jnp.zeros_like, TASKS["chars"](0).params)
    tx = relaxjax.sparse_loco(optax.sgd(RATE), "data")
    ring = relaxjax.wire_bytes(relaxjax.all_reduce("data"), params, where(8))
    sent = relaxjax.wire_bytes(tx, params, where(8), steps=30)
    assert 0 < sent <= 30 * ring / 900


def test_chunks_are_cut_from_leaves_that_lie_end_to_end():
    """Four leaves of two elements are one chunk of eight, of which one is sent."""
    tx = relaxjax.sparse_loco(
        optax.sgd(1.0), "data", 1, density=1 / 8, chunk_size=8, bits=8
    )
    grads = {k: jnp.array([i, -i - 0.5]) for i, k in enumerate("abcd")}

    def first(params: Any) -> Any:
        return tx.update(grads, tx.init(params), params)[0]

    zeros = jax.tree.map(jnp.zeros_like, grads)
    one = jax.vmap(first, axis_name="data", axis_size=2, in_axes=None)(zeros)
    moved = {k: np.count_nonzero(x[0]) for k, x in one.items()}
    assert moved == {"a": 0, "b": 0, "c": 0, "d": 1}


def test_params_and_state_may_be_donated_together():
    params = {"w": jnp.ones((2, 3)), "b": jnp.ones(3)}
    tx = relaxjax.sparse_loco(optax.adam(0.1), "data")
    helpers.assert_no_shared_buffer((params, tx.init(params)))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"sync_every": 0}, "sparse_loco: sync_every=0 must be a whole number"),
        ({"density": 0.0}, r"density=0.0 must be in \(0, 1\]"),
        ({"bits": 3}, "bits=3 must be 8, 4 or 2"),
        ({"decay": 1.5}, r"decay=1.5 must be in \(0, 1\]"),
        ({"chunk_size": 0}, "sparse_loco: chunk_size=0 must be a whole number, 1"),
    ],
)
def test_refuses(how: Any, message):
    with pytest.raises(ValueError, match=message):
        relaxjax.sparse_loco(optax.sgd(1.0), "data", **how)

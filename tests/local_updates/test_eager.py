"""Eager updates against a list of workers; what they keep and send."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import emulate
from tests import helpers
from tests.helpers import mesh_of, pulled, targets_of
from tests.local_updates.codes import CODES

RATE, ETA, MU, STEPS, EVERY = 0.1, 0.7, 0.9, 30, 3


def reference(targets: np.ndarray, code) -> list[np.ndarray]:
    """Models of all workers after each step; outer Nesterov, one for each worker."""
    n, d = targets.shape
    zeros = [np.zeros(d) for _ in range(n)]
    xs, anchors, velocities, old, lost = (list(zeros) for _ in range(5))
    seen = []
    for step in range(1, STEPS + 1):
        xs = [x - RATE * (x - target) for x, target in zip(xs, targets, strict=True)]
        if step % EVERY == 0:
            sent = []
            for i in range(n):
                p = lost[i] + old[i]
                sent.append(code(p))
                lost[i] = p - sent[i]
            for i in range(n):
                own = anchors[i] - xs[i]
                others = sum(sent) / n - old[i] / n
                eager = own / n + others
                velocities[i] = MU * velocities[i] + eager
                anchors[i] = anchors[i] - ETA * (eager + MU * velocities[i])
                xs[i], old[i] = anchors[i], own
        seen.append(np.stack(xs))
    return seen


@pytest.mark.few(2)
@pytest.mark.parametrize("n", [2, 3, 5, 8])
@pytest.mark.parametrize("code", CODES.values(), ids=CODES)
def test_equals_a_list_of_workers(n, code):
    compressor, algorithm, plain = code
    tx = relaxjax.eager_diloco(
        optax.sgd(RATE), "data", EVERY, compressor=compressor, algorithm=algorithm
    )
    expected = reference(targets_of(n), plain)
    for mesh in (emulate(n), mesh_of(n)):
        found = pulled(tx, targets_of(n), mesh, STEPS)
        for (x, _), ref in zip(found, expected, strict=True):
            np.testing.assert_allclose(x, ref, atol=2e-5)


def test_a_worker_alone_waits_for_nobody():
    tx = relaxjax.eager_diloco(optax.adam(0.05), "data", EVERY)
    same = relaxjax.diloco(optax.adam(0.05), "data", EVERY)
    for (x, _), (y, _) in zip(
        pulled(tx, targets_of(1), emulate(1), 12),
        pulled(same, targets_of(1), emulate(1), 12),
        strict=True,
    ):
        np.testing.assert_allclose(x, y, atol=1e-6)


def test_nothing_of_an_outer_gradient_is_lost():
    """With outer SGD(1) and updates that do not look at the model: by sums."""
    n, rounds = 4, 7
    tx = relaxjax.eager_diloco(optax.identity(), "data", 1, outer=optax.sgd(1.0))
    pulls = np.random.default_rng(0).normal(size=(rounds, n, 3)).astype(np.float32)
    found = helpers.history(
        tx, lambda x, pull: pull[0], jnp.zeros(3), pulls, emulate(n), donate=True
    )
    x, _ = found[-1]
    own = pulls[-1] / n
    np.testing.assert_allclose(x, pulls[:-1].mean(axis=1).sum(axis=0) + own, atol=1e-5)


@pytest.mark.parametrize("where", [mesh_of, emulate])
def test_sends_what_an_all_reduce_does_once_in_a_round(where):
    params = {"w": jnp.zeros((64, 64)), "b": jnp.zeros(64)}
    ring = relaxjax.wire_bytes(relaxjax.all_reduce("data"), params, where(4))
    tx = relaxjax.eager_diloco(optax.adam(0.1), "data", EVERY)
    each = [relaxjax.wire_bytes(tx, params, where(4), start=t) for t in range(6)]
    assert each == [0, 0, ring] * 2


def test_params_and_state_may_be_donated_together():
    params = {"w": jnp.ones((2, 3)), "b": jnp.ones(3)}
    tx = relaxjax.eager_diloco(optax.adam(0.1), "data", EVERY)
    helpers.assert_no_shared_buffer((params, tx.init(params)))


def test_refuses_to_synchronize_never():
    with pytest.raises(ValueError, match="eager_diloco: sync_every=0 must be a whole"):
        relaxjax.eager_diloco(optax.sgd(1.0), "data", 0)


@pytest.mark.parametrize(("rate", "dies_out"), [(0.9, True), (1.1, False)])
def test_outer_gradients_a_round_old_need_a_rate_below_one(rate, dies_out):
    """Steps reach their goal at once; among 64 workers one's own part is small."""
    tx = relaxjax.eager_diloco(optax.sgd(1.0), "data", 1, outer=optax.sgd(rate))
    targets = np.ones((64, 1)) * targets_of(1)
    far = [np.abs(x - targets).max() for x, _ in pulled(tx, targets, emulate(64), 60)]
    assert (far[-1] < 0.2 * far[0]) == dies_out
    assert (max(far[-5:]) > 2 * far[0]) != dies_out

"""Moniqua against a list of workers; its error, its mean, its refusals."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import emulate, topology
from tests.decentralized import references
from tests.decentralized.test_methods import (
    RATE,
    SGD,
    STEPS,
    assert_same_ways,
    matrices,
)
from tests.helpers import mesh_of, pulled, targets_of

THETA = 0.7


def made(n: int, bits: int, theta: float = THETA, **how: Any) -> Any:
    method = relaxjax.moniqua("data", topology.ring(n), theta, bits=bits, **how)
    return optax.chain(SGD, method)


@pytest.mark.few(2)
@pytest.mark.parametrize("n", [2, 3, 5, 8])
@pytest.mark.parametrize("bits", [2, 8])
def test_equals_a_list_of_workers(n, bits):
    targets, rounds = targets_of(n), matrices(topology.ring(n), 1, STEPS)
    expected = references.moniqua(targets, rounds, RATE, THETA, bits)
    for mesh in (emulate(n), mesh_of(n)):
        assert_same_ways(pulled(made(n, bits), targets, mesh), expected, 1e-5)


def test_steps_are_silent():
    targets, rounds = targets_of(5), matrices(topology.ring(5), 3, STEPS)
    expected = references.moniqua(targets, rounds, RATE, 2.0, 4)
    for mesh in (emulate(5), mesh_of(5)):
        found = pulled(made(5, 4, 2.0, every=3), targets, mesh)
        assert_same_ways(found, expected, 1e-5)


@pytest.mark.parametrize(
    ("bits", "most"), [(1, 0.3), (2, 0.1), (4, 0.02), (8, 0.001177)]
)
def test_golden_error(bits, most):
    """Largest |x^ - x| at theta = 0.3, wherever the models are; the complete graph of
    two shows worker 1's x^ at worker 0."""
    theta = 0.3
    tx: Any = relaxjax.moniqua("data", topology.complete(2), theta, bits=bits)
    rng = np.random.default_rng(0)
    x = rng.uniform(-5, 5, 4096)
    y = x + rng.uniform(-theta, theta, 4096) * 0.999

    def run(x):
        moved, _ = tx.update(0 * x, tx.init(x), x)
        return moved

    both = np.asarray([x, y], np.float32)
    moved = np.asarray(jax.vmap(run, axis_name="data")(both), np.float64)
    # moved[0] = (x^_1 - x^_0) / 2, so that both errors are in it.
    error = np.abs(2 * moved[0] - (both[1] - both[0]).astype(np.float64)) / 2
    assert 0.9 * most < error.max() <= most + 2e-6


def test_the_mean_model_moves_by_the_mean_update():
    targets, x = targets_of(8) / 4, np.zeros((8, 5))
    for params, _ in pulled(made(8, 2), targets, emulate(8)):
        expected = x.mean(axis=0) - RATE * (x - targets).mean(axis=0)
        x = np.asarray(params, np.float64)
        assert np.ptp(x, axis=0).max() < THETA
        np.testing.assert_allclose(x.mean(axis=0), expected, atol=1e-6)


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_sends_so_many_bits(bits):
    params = {"w": jnp.zeros((16, 8))}
    sent = relaxjax.wire_bytes(made(8, bits), params, emulate(8))
    assert sent == 2 * 128 * bits // 8


def test_keeps_nothing():
    state: Any = made(4, 8).init({"w": jnp.zeros(3)})
    assert state[1].kept == ()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: made(4, 8, 0.0), "theta=0.0 must be over 0"),
        (lambda: made(4, 8, float("nan")), "theta=nan must be over 0"),
        (lambda: made(4, 3), "bits=3 must be one of"),
        (
            lambda: relaxjax.moniqua("data", topology.shift_one(4), 1.0),
            "has 2 rounds",
        ),
        (
            lambda: made(4, 8).init({"w": jnp.zeros(3, jnp.int32)}),
            "leaf 'w' is int32",
        ),
    ],
)
def test_refuses(make, message):
    with pytest.raises(ValueError, match=message):
        make()

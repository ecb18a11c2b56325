"""Gossip in codes against lists of workers: CHOCO, DCD-PSGD, DeepSqueeze."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import compression, emulate, topology
from tests import helpers
from tests.decentralized import references
from tests.decentralized.test_methods import (
    RATE,
    SGD,
    STEPS,
    assert_same_ways,
    matrices,
)
from tests.helpers import mesh_of, pulled, targets_of


def signs(x: np.ndarray) -> np.ndarray:
    return np.abs(x).mean() * np.where(x >= 0, 1.0, -1.0)


def exactly(x: np.ndarray) -> np.ndarray:
    return x


CODES: Any = {
    "sign": (compression.sign(), signs),
    "identity": (compression.identity(), exactly),
}
codes = pytest.mark.parametrize(("codec", "plain"), CODES.values(), ids=CODES)
sizes = pytest.mark.parametrize("n", [2, 3, 5, 8])


def choco(
    n: int, codec: Any, gamma: float = 0.4, *, graph: Any = None, **how: Any
) -> Any:
    graph = graph or topology.ring(n)
    method = relaxjax.gossip(
        "data", graph, compressor=codec, consensus_step_size=gamma, **how
    )
    return optax.chain(SGD, method)


def dcd(n: int, codec: Any, *, graph: Any = None, **how: Any) -> Any:
    graph = graph or topology.ring(n)
    return optax.chain(SGD, relaxjax.dcd_psgd("data", graph, codec, **how))


def deep_squeeze(
    n: int, codec: Any, eta: float = 0.3, *, graph: Any = None, **how: Any
) -> Any:
    method = relaxjax.deep_squeeze(
        "data", graph or topology.ring(n), codec, consensus_step_size=eta, **how
    )
    return optax.chain(SGD, method)


WAYS: Any = {
    "choco": (choco, functools.partial(references.choco, gamma=0.4)),
    "dcd": (dcd, references.dcd),
    "deep_squeeze": (deep_squeeze, functools.partial(references.deep_squeeze, eta=0.3)),
}
ways = pytest.mark.parametrize(("make", "reference"), WAYS.values(), ids=WAYS)


@pytest.mark.few(2)
@sizes
@codes
@ways
def test_equals_a_list_of_workers(n, codec, plain, make, reference):
    targets, graph = targets_of(n), topology.ring(n)
    expected = reference(targets, matrices(graph, 1, STEPS), RATE, plain)
    for mesh in (emulate(n), mesh_of(n)):
        assert_same_ways(pulled(make(n, codec), targets, mesh), expected, 2e-5)


@pytest.mark.few(2)
@codes
@ways
def test_steps_are_silent(codec, plain, make, reference):
    targets, graph = targets_of(5), topology.ring(5)
    expected = reference(targets, matrices(graph, 3, STEPS), RATE, plain)
    for mesh in (emulate(5), mesh_of(5)):
        found = pulled(make(5, codec, every=3), targets, mesh)
        assert_same_ways(found, expected, 2e-5)


@pytest.mark.few(1)
@pytest.mark.parametrize("where", [mesh_of, emulate])
@pytest.mark.parametrize("make", [choco, dcd])
def test_copies_at_both_ends_are_the_same_to_the_bit(make, where):
    """Also with a codec that rounds at random."""
    n = 5
    ring = topology.ring(n)
    codec = compression.quantize(4, stochastic_rounding=True)
    for _, state in pulled(make(n, codec), targets_of(n), where(n)):
        own, *heard = state[1].kept.known
        for (pairs, _), copies in zip(ring.messages(), heard, strict=True):
            for source, target in pairs:
                np.testing.assert_array_equal(copies[target], own[source])


@pytest.mark.few(1)
@pytest.mark.parametrize("make", [choco, dcd])
def test_an_unbiased_code_is_made_a_contraction(make):
    """TernGrad says 0 or the largest magnitude: here a (1 + omega)-th of it."""
    codec, targets = compression.tern_grad(), targets_of(4)
    _, state = pulled(make(4, codec), targets, emulate(4), steps=1)[0]
    omega: Any = codec.law.omega
    most = RATE * np.abs(targets).max(axis=1, keepdims=True) / (1 + omega(5))
    own = np.abs(state[1].kept.known[0])
    assert (own > 0).any()
    np.testing.assert_allclose(own, np.where(own > 0, most, 0), rtol=1e-5)


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("make", [choco, dcd, deep_squeeze])
def test_the_seed_draws_the_rounding(make):
    codec, targets = compression.quantize(2, stochastic_rounding=True), targets_of(4)
    first, again, other = (
        pulled(make(4, codec, seed=seed), targets, emulate(4), steps=2)[-1][0]
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


@pytest.mark.few(2)
@pytest.mark.parametrize("where", [mesh_of, emulate])
@pytest.mark.parametrize("make", [choco, dcd, deep_squeeze])
def test_what_is_not_heard_may_not_be_finite(make, where):
    """On a chain, where most messages do not reach all: 0 times NaN is NaN."""
    n, graph = 5, topology.chain(5)
    tx = make(n, compression.identity(), graph=graph)
    for lost in range(n):
        targets = np.where(np.arange(n)[:, None] == lost, np.nan, targets_of(n))
        params, _ = pulled(tx, targets, where(n), steps=1)[0]
        heard = graph.matrix()[:, lost] != 0
        if make is dcd:  # which sends after it has received
            heard = np.arange(n) == lost
        np.testing.assert_array_equal(np.isnan(params).any(axis=1), heard)


def test_dcd_starts_from_models_that_all_know():
    """Nothing to say, so nothing moves, wherever it starts."""
    x, tx = (
        jnp.full((4, 3), 7.0),
        relaxjax.dcd_psgd("data", topology.ring(4), compression.sign()),
    )
    moved = jax.vmap(lambda x: tx.update(0 * x, tx.init(x), x)[0], axis_name="data")(x)
    np.testing.assert_array_equal(moved, 0)


def test_dcd_models_are_the_copies():
    for params, state in pulled(
        dcd(5, compression.quantize(8)), targets_of(5), emulate(5)
    ):
        np.testing.assert_allclose(params, state[1].kept.known[0], atol=1e-6)


@pytest.mark.parametrize("make", [choco, deep_squeeze])
def test_the_mean_model_moves_by_the_mean_update(make):
    targets, x = targets_of(8), np.zeros((8, 5))
    for params, _ in pulled(make(8, compression.sign()), targets, emulate(8)):
        expected = x.mean(axis=0) - RATE * (x - targets).mean(axis=0)
        x = np.asarray(params, np.float64)
        np.testing.assert_allclose(x.mean(axis=0), expected, atol=1e-6)


def test_choco_in_signs_agrees_where_gossip_agrees():
    """No gradients: all that is left is the mean, though a bit travels per element."""
    n, start = 8, np.random.default_rng(0).normal(size=(8, 6)).astype(np.float32)
    tx: Any = relaxjax.gossip(
        "data", topology.ring(n), compressor=compression.sign(), consensus_step_size=0.3
    )

    def run(x):
        def step(carry, _):
            x, state = carry
            moved, state = tx.update(0 * x, state, x)
            return (x + moved, state), None

        (x, _), _ = jax.lax.scan(step, (x, tx.init(x)), length=800)
        return x

    found = jax.jit(jax.vmap(run, axis_name="data"))(start)
    mean = np.broadcast_to(start.mean(axis=0), start.shape)
    np.testing.assert_allclose(found, mean, atol=1e-3)


def test_choco_sends_less_than_a_twenty_fifth_in_signs():
    n, params = 8, {"w": jnp.zeros((64, 64))}
    ring = relaxjax.wire_bytes(relaxjax.all_reduce("data"), params, emulate(n))
    tx = choco(n, compression.sign())
    sent = relaxjax.wire_bytes(tx, params, emulate(n))
    assert sent == 2 * (64 * 64 // 8 + 4)
    assert sent <= ring / 25
    silent = choco(n, compression.sign(), every=3)
    assert [
        relaxjax.wire_bytes(silent, params, emulate(n), start=t) for t in range(3)
    ] == [0, 0, sent]


@pytest.mark.parametrize("make", [choco, dcd, deep_squeeze])
def test_params_and_state_may_be_donated_together(make):
    params = {"w": jnp.ones((2, 3)), "b": jnp.ones(3)}
    tx = make(4, compression.quantize(8, stochastic_rounding=True))
    helpers.assert_no_shared_buffer((params, tx.init(params)))


@pytest.mark.parametrize("make", [choco, dcd, deep_squeeze])
def test_refuses_feedback_and_leaves_that_it_cannot_take(make):
    with pytest.raises(ValueError, match="comes back by itself here"):
        make(4, compression.error_feedback(compression.sign()))
    with pytest.raises(ValueError, match="leaf 'w' is int32"):
        make(4, compression.sign()).init({"w": jnp.zeros(3, jnp.int32)})


def test_refuses_graphs_that_change():
    graph, codec = topology.one_peer_exponential(8), compression.sign()
    for method in (
        lambda: relaxjax.gossip("data", graph, compressor=codec),
        lambda: relaxjax.dcd_psgd("data", graph, codec),
        lambda: relaxjax.deep_squeeze("data", graph, codec),
    ):
        with pytest.raises(ValueError, match=r"has 3 rounds, .*needs one that stays"):
            method()


@pytest.mark.parametrize("gamma", [0, -0.1, 1.5])
@pytest.mark.parametrize("make", [choco, deep_squeeze])
def test_refuses_a_bad_step_size(make, gamma):
    with pytest.raises(ValueError, match=rf"consensus_step_size={gamma} must be in"):
        make(4, compression.sign(), gamma)

"""RelaySum on trees against messages by hand; its sums and its refusals."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import emulate, topology
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

# Worker 1 has four neighbors; links come in no order.
_LIMBS = [(0, 1), (1, 2), (5, 1), (4, 1), (4, 3), (6, 3), (7, 6)]


def limbs(n: int) -> topology.Topology:
    links = np.zeros((8, 8), bool)
    for a, b in _LIMBS:
        links[a, b] = links[b, a] = True
    return topology.metropolis(links[:n, :n])


TREES: Any = {
    "chain": topology.chain,
    "binary_tree": topology.binary_tree,
    "star": topology.star,
}
trees = pytest.mark.parametrize("tree", TREES.values(), ids=TREES)


def relayed(graph: topology.Topology, **how: Any) -> Any:
    return optax.chain(SGD, relaxjax.relay_sum("data", graph, **how))


@pytest.mark.few(2)
@trees
@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
def test_equals_messages_by_hand(tree, n):
    graph, targets = tree(n), targets_of(n)
    expected = references.relay_sum(targets, matrices(graph, 1, STEPS), RATE)
    for mesh in (emulate(n), mesh_of(n)):
        assert_same_ways(pulled(relayed(graph), targets, mesh), expected)


@pytest.mark.few(2)
@pytest.mark.parametrize("every", [1, 3])
def test_any_tree_and_silent_steps(every):
    graph, targets = limbs(8), targets_of(8)
    expected = references.relay_sum(targets, matrices(graph, every, STEPS), RATE)
    for mesh in (emulate(8), mesh_of(8)):
        found = pulled(relayed(graph, every=every), targets, mesh)
        assert_same_ways(found, expected)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("graph", "diameter"),
    [
        (topology.chain(6), 5),
        (topology.binary_tree(7), 4),
        (topology.star(5), 2),
        (limbs(8), 5),
    ],
    ids=["chain", "binary_tree", "star", "limbs"],
)
def test_sums_are_exact_after_diameter_rounds_and_not_before(graph, diameter):
    """With whole numbers no addition rounds; models stay where they are."""
    n = graph.n
    values = np.random.default_rng(0).integers(0, 99, (n, 4)).astype(np.float32)
    tx: Any = relaxjax.relay_sum("data", graph)

    def run(x):
        state, seen = tx.init(x), []
        for _ in range(diameter + 1):
            moved, state = tx.update(0 * x, state, x)
            seen.append((x + sum(state.kept.heard), x + moved))
        return jax.tree.map(lambda *y: jnp.stack(y), *seen)

    sums, means = jax.jit(jax.vmap(run, axis_name="data", out_axes=1))(values)
    exact = np.broadcast_to(values.sum(axis=0), values.shape)
    for t in (diameter, diameter + 1):
        np.testing.assert_array_equal(sums[t - 1], exact)
        np.testing.assert_allclose(means[t - 1], exact / n, rtol=1e-6)
    assert (np.asarray(sums[diameter - 2]) != exact).any()


def test_finds_the_minimum_of_all_without_the_bias_of_gossip():
    targets = targets_of(8)
    graph = topology.binary_tree(8)
    mean = targets.mean(axis=0)
    apart = {}
    for name, tx in (
        ("relay_sum", relayed(graph)),
        ("gossip", optax.chain(SGD, relaxjax.gossip("data", graph))),
    ):
        params, _ = pulled(tx, targets, emulate(8), steps=500)[-1]
        apart[name] = np.abs(params.mean(axis=0) - mean).max()
        apart[name, "own"] = np.abs(params - mean).max()
    assert apart["relay_sum"] < 2e-6
    assert apart["gossip", "own"] > 0.1


def test_old_models_slow_the_way_down_by_their_mean_age():
    """Chain of 3: ages 0, 0, 1 at its ends, and 0 in the middle; the mean is 2 / 9."""
    tx: Any = relaxjax.relay_sum("data", topology.chain(3))

    def run(x):
        def step(carry, _):
            x, state = carry
            moved, state = tx.update(jnp.ones(()), state, x)
            return (x + moved, state), x

        return jax.lax.scan(step, (x, tx.init(x)), length=60)[1]

    ways = jax.jit(jax.vmap(run, axis_name="data", out_axes=1))(jnp.zeros(3))
    np.testing.assert_allclose(ways[-1] - ways[-2], 1 / (1 + 2 / 9), rtol=1e-5)


@pytest.mark.parametrize("n", [5, 8])
def test_sends_the_params_to_each_neighbor(n):
    params = {"w": jnp.zeros((4, 4)), "b": jnp.zeros(3)}
    for graph, most in ((topology.chain(n), 2), (topology.binary_tree(n), 3)):
        tx = relaxjax.relay_sum("data", graph)
        assert relaxjax.wire_bytes(tx, params, emulate(n)) == most * 19 * 4


@pytest.mark.long
def test_what_does_not_reach_a_worker_may_not_be_finite():
    """Worker 0's model is lost; worker 2 has not heard of it after one round."""
    tx: Any = relaxjax.relay_sum("data", topology.chain(3))

    def run(x):
        moved, _ = tx.update(0 * x, tx.init(x), x)
        return x + moved

    for start in ([jnp.nan, 1.0, 3.0], [jnp.inf, 1.0, 3.0]):
        found = jax.vmap(run, axis_name="data")(jnp.array(start))
        np.testing.assert_allclose(found[2], (2 * 3 + 1) / 3, rtol=1e-6)


def test_params_and_state_may_be_donated_together():
    params = {"w": jnp.ones((2, 3)), "b": jnp.ones(3)}
    tx = relayed(topology.chain(3))
    helpers.assert_no_shared_buffer((params, tx.init(params)))


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (topology.ring(4), "'ring' is not a tree: .* 3 for 4 workers"),
        (topology.exponential(5), "'exponential' is not a tree"),
        (
            topology.metropolis(np.eye(5, k=1) + np.eye(5, k=-1) > 2),
            "'metropolis' is not a tree",
        ),
        (  # a directed ring: two links upwards
            topology.from_matrix((np.eye(3) + np.roll(np.eye(3), 1, axis=1)) / 2),
            "'from_matrix' is not a tree",
        ),
        (  # as many links as a tree has, but worker 3 is alone
            topology.metropolis(np.pad(np.ones((3, 3)), (0, 1))),
            "'metropolis' is not a tree",
        ),
        (topology.one_peer_exponential(4), "has 2 rounds, and what is passed on needs"),
    ],
)
def test_refuses_what_is_not_a_tree(graph, message):
    with pytest.raises(
        ValueError,
        match=rf"relay_sum: the topology {message}"
        if "not a tree" in message
        else message,
    ):
        relaxjax.relay_sum("data", graph)


def test_refuses_two_axes():
    with pytest.raises(TypeError, match=r"all_reduce\('device'\).*relay_sum\('host'"):
        relaxjax.relay_sum(("host", "device"), topology.chain(2))

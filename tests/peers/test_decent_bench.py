"""Decentralized methods beside those of decent-bench, on its costs and its graphs."""

import importlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import topology

costs = pytest.importorskip("decent_bench.costs")
agents = pytest.importorskip("decent_bench.agents")
networks = pytest.importorskip("decent_bench.networks")
schemes = pytest.importorskip("decent_bench.schemes")
p2p = pytest.importorskip("decent_bench.algorithms.p2p")
nx = pytest.importorskip("networkx")
iop = importlib.import_module("decent_array.interoperability")
iop.set_backend("numpy")

N, SIZE, RATE, STEPS = 8, 5, 0.05, 60
GRAPHS = {
    "path": nx.path_graph(N),
    "ring": nx.cycle_graph(N),
    "tree": nx.balanced_tree(2, 2),
    "random": nx.gnp_random_graph(N, 0.5, seed=3),
}


def quadratics(n: int) -> tuple[np.ndarray, np.ndarray]:
    """A of (n, SIZE, SIZE) and b of (n, SIZE): workers whose optima differ."""
    rng = np.random.default_rng(0)
    roots = rng.normal(size=(n, SIZE, SIZE)) / np.sqrt(SIZE)
    return roots @ roots.transpose(0, 2, 1) + 0.5 * np.eye(SIZE), rng.normal(
        size=(n, SIZE)
    )


def theirs(name: str, graph: Any, steps: int = STEPS, **network: Any) -> np.ndarray:
    """[n, SIZE]: the models after some steps of their own loop."""
    each = zip(*quadratics(len(graph)), strict=True)
    members = [
        agents.Agent(costs.QuadraticCost(iop.from_numpy(a), iop.from_numpy(b)))
        for a, b in each
    ]
    place = networks.P2PNetwork(graph, members, **network)
    getattr(p2p, name)(step_size=RATE).run(place, steps)
    return np.stack([iop.to_numpy(member.x) for member in members])


def ours(chain: Any, graph: Any, steps: int = STEPS) -> np.ndarray:
    """The same of relaxjax, in float64."""
    with jax.enable_x64(True):
        a, b = map(jnp.asarray, quadratics(len(graph)))
        links = topology.metropolis(nx.to_numpy_array(graph) > 0)
        tx = chain(links)

        def train(a, b):
            def step(carry, _):
                x, state = carry
                updates, state = tx.update(a @ x + b, state, x)
                return (optax.apply_updates(x, updates), state), None

            x = jnp.zeros(SIZE)
            return jax.lax.scan(step, (x, tx.init(x)), length=steps)[0][0]

        return np.asarray(jax.vmap(train, axis_name="data")(a, b))


def before(links: Any) -> Any:
    return optax.chain(optax.sgd(RATE), relaxjax.combine_then_adapt("data", links))


def after(links: Any) -> Any:
    return optax.chain(optax.sgd(RATE), relaxjax.gossip("data", links))


def exact(links: Any) -> Any:
    lazy = topology.lazy(links)
    return optax.chain(optax.sgd(RATE), relaxjax.exact_diffusion("data", lazy))


def tracked(links: Any) -> Any:
    first = relaxjax.gradient_tracking("data", links)
    return optax.chain(first, after(links))


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
@pytest.mark.parametrize(
    ("name", "chain"), [("DGD", before), ("ATC", after), ("ED", exact)]
)
def test_step_for_step(name, chain, graph):
    np.testing.assert_allclose(ours(chain, graph), theirs(name, graph), atol=1e-9)


def behind(links: Any) -> Any:
    return optax.chain(relaxjax.atc_tracking("data", links), after(links))


def after_one_step(links: Any) -> Any:
    """Aug-DGM: a step of gossip, and then gradient tracking from its start."""
    plain, rest = after(links), tracked(links)

    def init(params: Any) -> Any:
        return jnp.bool_(True), plain.init(params), rest.init(params)

    def update(updates: Any, state: Any, params: Any = None) -> Any:
        first, before, now = state
        alone, before = plain.update(updates, before, params)
        out, then = rest.update(updates, now, params)
        chosen = optax.tree.where(first, (alone, now), (out, then))
        return chosen[0], (jnp.bool_(False), before, chosen[1])

    return optax.GradientTransformation(init, update)


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
@pytest.mark.parametrize(
    ("name", "chain"), [("ATC_Tracking", behind), ("AugDGM", after_one_step)]
)
def test_named_forms_of_tracking_step_for_step(name, chain, graph):
    np.testing.assert_allclose(ours(chain, graph), theirs(name, graph), atol=1e-9)


def test_gradient_tracking_is_one_mixing_ahead_of_both():
    graph = GRAPHS["ring"]
    found = ours(tracked, graph, 3)
    for name in ("AugDGM", "ATC_Tracking"):
        assert np.abs(found - theirs(name, graph, 3)).max() > 1e-4


def optimum(n: int) -> np.ndarray:
    a, b = quadratics(n)
    return -np.linalg.solve(a.sum(0), b.sum(0))


def test_extra_mixes_no_gradients_and_ends_where_exact_diffusion_does():
    graph = GRAPHS["path"]
    assert np.abs(ours(exact, graph, 4) - theirs("EXTRA", graph, 4)).max() > 1e-4
    for found in (ours(exact, graph, 4000), theirs("EXTRA", graph, 4000)):
        np.testing.assert_allclose(found, [optimum(len(graph))] * len(graph), atol=1e-6)


@pytest.mark.parametrize("name", ["DGD", "ATC", "ED"])
def test_lost_messages_take_models_to_zero_there(name):
    """Weights that arrive add up to less than 1; nothing but the mean is asked for."""
    start = np.random.default_rng(1).normal(size=(N, SIZE)) + 3
    members = [agents.Agent(costs.ZeroCost((SIZE,))) for _ in start]
    drops = schemes.UniformDropRate(0.1)
    place = networks.P2PNetwork(GRAPHS["ring"], members, message_drop=drops)
    first = dict(zip(members, map(iop.from_numpy, start), strict=True))
    getattr(p2p, name)(step_size=RATE, x0=first).run(place, 1000)
    assert max(np.abs(iop.to_numpy(one.x)).max() for one in members) < 1e-3


def test_lost_messages_leave_the_mean_of_lossy_push_sum():
    start = np.random.default_rng(1).normal(size=(N, SIZE)) + 3
    tx = relaxjax.lossy_push_sum("data", topology.ring(N), 0.1)

    def train(x: jax.Array) -> Any:
        def step(carry: Any, _: None) -> Any:
            x, state = carry
            updates, state = tx.update(jnp.zeros(SIZE), state, x)
            return (optax.apply_updates(x, updates), state), None

        return jax.lax.scan(step, (x, tx.init(x)), length=400)[0][0]

    found: Any = jax.vmap(train, axis_name="data")(jnp.float32(start))
    np.testing.assert_allclose(found, [start.mean(0)] * N, atol=1e-4)

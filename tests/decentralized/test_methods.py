"""Gossip and its corrected forms against lists of workers, their laws and refusals."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import compression, emulate, topology
from relaxjax.topology import Topology
from tests import helpers
from tests.decentralized import references
from tests.helpers import mesh_of, pulled, targets_of

RATE, BETA, STEPS = 0.1, 0.8, 20
SGD = optax.sgd(RATE)


def tracked(method: Callable[..., Any]) -> Callable[..., Any]:
    def made(graph: Topology, axis: Any = "data", **how: Any) -> Any:
        after = relaxjax.gossip(axis, graph, **how)
        return optax.chain(method(axis, graph, **how), SGD, after)

    return made


def after_sgd(method: Callable[..., Any], **knobs: Any) -> Callable[..., Any]:
    def made(graph: Topology, axis: Any = "data", **how: Any) -> Any:
        return optax.chain(SGD, method(axis, graph, **knobs, **how))

    return made


METHODS: dict[str, Callable[..., Any]] = {
    "gossip": after_sgd(relaxjax.gossip),
    "combine_then_adapt": after_sgd(relaxjax.combine_then_adapt),
    "exact_diffusion": after_sgd(relaxjax.exact_diffusion),
    "gradient_tracking": tracked(relaxjax.gradient_tracking),
    "atc_tracking": tracked(relaxjax.atc_tracking),
    "push_sum": after_sgd(relaxjax.push_sum),
    "quasi_global_momentum": after_sgd(relaxjax.quasi_global_momentum, momentum=BETA),
}
REFERENCES: dict[str, Callable[..., Any]] = {
    "gossip": references.gossip,
    "combine_then_adapt": references.combine_then_adapt,
    "exact_diffusion": references.d_squared,
    "gradient_tracking": references.gradient_tracking,
    "atc_tracking": references.atc_tracking,
    "push_sum": references.push_sum,
    "quasi_global_momentum": functools.partial(
        references.quasi_global_momentum, beta=BETA
    ),
}
# For what all methods refuse alike: what each needs beyond axis and topology.
NEEDED: dict[str, dict[str, Any]] = {
    **{name: {} for name in METHODS},
    "dcd_psgd": {"compressor": compression.sign()},
    "deep_squeeze": {"compressor": compression.sign()},
    "moniqua": {"theta": 1.0},
    "relay_sum": {},
}
TRACKING = {"gradient_tracking", "atc_tracking"}
ALONE = METHODS.keys() - TRACKING
methods = pytest.mark.parametrize("name", METHODS)
every_method = pytest.mark.parametrize("name", NEEDED)
alone = pytest.mark.parametrize("name", sorted(ALONE))


def lopsided(n: int) -> Topology:
    """Directed and irregular: worker i gives to those behind it, and to 0."""
    w = np.tril(np.ones((n, n)))
    w[0] = 1
    return topology.from_column_stochastic(w / w.sum(axis=0))


def graph_of(name: str, n: int) -> Topology:
    if name == "push_sum":
        return lopsided(n)
    if name == "exact_diffusion":
        return topology.lazy(topology.ring(n))
    if name == "relay_sum":
        return topology.chain(n)
    return topology.ring(n)


def matrices(graph: Topology, every: int, steps: int) -> references.Rounds:
    return [
        graph.matrix(t // every) if t % every == every - 1 else None
        for t in range(steps)
    ]


def assert_same_ways(found: list[Any], expected: list[Any], atol: float = 2e-6) -> None:
    for (x, _), ref in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, np.stack(ref), atol=atol)


@pytest.mark.few(2)
@methods
@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_equals_a_list_of_workers(name, n):
    graph, targets = graph_of(name, n), targets_of(n)
    expected = REFERENCES[name](targets, matrices(graph, 1, STEPS), RATE)
    for mesh in (emulate(n), mesh_of(n)):
        assert_same_ways(pulled(METHODS[name](graph), targets, mesh), expected)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", sorted({*METHODS} - {"exact_diffusion"}))
@pytest.mark.parametrize("every", [1, 3])
def test_graphs_take_turns_and_steps_are_silent(name, every):
    graph, targets = topology.base_graph(5), targets_of(5)
    assert graph.period == 5
    expected = REFERENCES[name](targets, matrices(graph, every, STEPS), RATE)
    tx = METHODS[name](graph, every=every)
    for mesh in (emulate(5), mesh_of(5)):
        assert_same_ways(pulled(tx, targets, mesh), expected)


def test_golden_vector_of_exact_diffusion():
    """Two workers, f_i = (x - t_i)^2 / 2 with t = (2, 0), lr 0.1, from (1, -1)."""
    graph = topology.from_matrix([[0.75, 0.25], [0.25, 0.75]])
    tx: Any = optax.chain(SGD, relaxjax.exact_diffusion("data", graph))
    found = golden(tx, np.array([1.0, -1.0]), np.array([2.0, 0.0]), 4)
    expected = [(0.6, -0.4), (0.215, 0.165), (0.06975, 0.47225), (0.1414625, 0.5463375)]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_golden_vector_of_quasi_global_momentum():
    """The same f from (0, 0), complete graph, momentum 0.9."""
    method = relaxjax.quasi_global_momentum("data", topology.complete(2), momentum=0.9)
    found = golden(optax.chain(SGD, method), np.zeros(2), np.array([2.0, 0.0]), 3)
    expected = np.repeat([[0.1], [0.199], [0.29611]], 2, axis=1)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def golden(tx: Any, x: np.ndarray, targets: np.ndarray, steps: int) -> np.ndarray:
    """Params after each step, [steps, workers]."""

    def run(x, target):
        state, seen = tx.init(x), []
        for _ in range(steps):
            updates, state = tx.update(x - target, state, x)
            x = x + updates
            seen.append(x)
        return jnp.stack(seen)

    run = jax.jit(jax.vmap(run, axis_name="data", out_axes=1))
    return np.asarray(run(np.float32(x), np.float32(targets)))


def test_exact_diffusion_with_local_steps():
    graph, targets = graph_of("exact_diffusion", 5), targets_of(5)
    expected = references.local_exact_diffusion(
        targets, graph.matrix(), RATE, every=3, steps=STEPS
    )
    tx = METHODS["exact_diffusion"](graph, every=3)
    for mesh in (emulate(5), mesh_of(5)):
        assert_same_ways(pulled(tx, targets, mesh), expected)


@methods
def test_the_mean_model_moves_by_the_mean_update(name):
    """The mean of push-sum is weighted by the mass."""
    graph, targets = graph_of(name, 8), targets_of(8)
    x = np.zeros((8, 5))
    mass = np.ones((8, 1))
    momentum = np.zeros(5)
    for params, state in pulled(METHODS[name](graph), targets, emulate(8)):
        before, mean = (mass * x).mean(axis=0), (x - targets).mean(axis=0)
        if name == "push_sum":
            mass = state[1].kept.mass[:, None]
            np.testing.assert_allclose(mass.sum(), 8, rtol=1e-6)
        step = -RATE * mean
        if name == "quasi_global_momentum":
            step = step + BETA * momentum
            momentum = BETA * momentum + (1 - BETA) * step
        x = np.asarray(params, np.float64)
        np.testing.assert_allclose((mass * x).mean(axis=0), before + step, atol=1e-6)


@pytest.mark.parametrize("name", sorted(TRACKING))
def test_tracked_gradients_have_the_mean_of_the_gradients(name):
    targets = targets_of(8)
    x = np.zeros((8, 5))
    for params, state in pulled(METHODS[name](topology.ring(8)), targets, emulate(8)):
        mean = (x - targets).mean(axis=0)
        np.testing.assert_allclose(state[0].kept.tracked.mean(axis=0), mean, atol=1e-6)
        x = params


def test_corrections_sum_to_zero():
    graph = graph_of("exact_diffusion", 8)
    tx = METHODS["exact_diffusion"](graph, every=2)
    for _, state in pulled(tx, targets_of(8), emulate(8)):
        np.testing.assert_allclose(state[1].kept.correction.sum(axis=0), 0, atol=1e-6)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "name", ["exact_diffusion", "gradient_tracking", "atc_tracking"]
)
@pytest.mark.parametrize("every", [1, 4])
def test_corrected_methods_find_the_minimum_of_all(name, every):
    targets = targets_of(8)
    tx = METHODS[name](graph_of(name, 8), every=every)
    params, _ = pulled(tx, targets, emulate(8), steps=400 * every)[-1]
    mean = np.broadcast_to(targets.mean(axis=0), params.shape)
    np.testing.assert_allclose(params, mean, atol=2e-6)


def test_gossip_has_the_bias_that_theory_says():
    """x = W (x - lr (x - target)) at rest: x = (I - (1 - lr) W)^-1 lr W target."""
    for name, right in (("gossip", True), ("combine_then_adapt", False)):
        graph, targets = topology.ring(8), targets_of(8)
        params, _ = pulled(METHODS[name](graph), targets, emulate(8), steps=400)[-1]
        w = graph.matrix()
        if right:
            rest = np.linalg.solve(np.eye(8) - (1 - RATE) * w, RATE * w @ targets)
        else:
            rest = np.linalg.solve((1 + RATE) * np.eye(8) - w, RATE * targets)
        np.testing.assert_allclose(params, rest, atol=1e-5)
        assert np.abs(rest - targets.mean(axis=0)).max() > 0.1


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["gossip", "push_sum", "gradient_tracking"])
def test_the_complete_graph_is_all_reduce(name):
    graph, data = topology.complete(4), helpers.batches(4, rows=8)
    params, _, _ = helpers.train(METHODS[name](graph), mesh_of(4), data)
    expected, _ = helpers.train_alone(SGD, data)
    assert relaxjax.spread(params) < 1e-6
    helpers.assert_close(jax.tree.map(lambda x: x[0], params), expected, 1e-5)


@pytest.mark.few(2)
@alone
def test_disagreement_shrinks_as_the_spectral_gap_says(name):
    """Without gradients, from the slowest mode of a ring."""
    n, steps = 8, 12
    graph = topology.ring(n)
    if name == "exact_diffusion":
        graph = topology.lazy(graph)
    method: Any = getattr(relaxjax, name)
    knobs = {"momentum": 0.0} if name == "quasi_global_momentum" else {}
    tx = method("data", graph, **knobs)
    mode = np.cos(2 * np.pi * np.arange(n) / n).astype(np.float32)

    def run(x):
        state = tx.init(x)
        for _ in range(steps):
            moved, state = tx.update(jnp.zeros(()), state, x)
            x = x + moved
        return x

    found = jax.jit(jax.vmap(run, axis_name="data"))(mode)
    value = 1 - graph.spectral_gap()
    shrunk = value**steps
    if name == "exact_diffusion":  # mu^2 = 2 l mu - l, from x = 1 and c = 0
        x, c = 1.0, 0.0
        for _ in range(steps):
            x, c = value * (x + c), c + (value - 1) * (x + c)
        shrunk = x
    np.testing.assert_allclose(found, shrunk * mode, atol=1e-6)


@pytest.mark.few(2)
@pytest.mark.parametrize("n", [2, 4, 8])
def test_one_peer_rounds_agree_after_a_period(n):
    graph = topology.one_peer_exponential(n)
    tx = relaxjax.gossip("data", graph)
    values = np.random.default_rng(0).normal(size=(n, 3)).astype(np.float32)
    for mesh in (emulate(n), mesh_of(n)):
        step = relaxjax.data_parallel(
            helpers.step_of(lambda x, _: 0 * x, tx), mesh, donate=True
        )
        _, state = relaxjax.init(tx, jnp.zeros(3), mesh)
        params: Any = jnp.asarray(values)
        for _ in range(graph.period):
            params, state, _ = step(params, state, np.zeros(n))
        mean = np.broadcast_to(values.mean(axis=0), (n, 3))
        np.testing.assert_allclose(params, mean, atol=1e-6)


@methods
def test_equal_models_stay_where_they_are(name):
    """To the bit: nothing drifts by gossip alone."""
    graph = topology.lazy(topology.ring(5))  # its rows sum to 1, for push-sum too
    x = np.full((5, 3), 0.1, np.float32)
    tx: Any = METHODS[name](graph)
    state = jax.vmap(tx.init, axis_name="data")(x)
    update = jax.vmap(lambda s, x: tx.update(0 * x, s, x)[0], axis_name="data")
    np.testing.assert_array_equal(jax.jit(update)(state, x), 0 * x)


@pytest.mark.few(2)
@methods
def test_a_graph_that_changes_compiles_once(name):
    n, traces = 4, []
    graph = graph_of(name, n)
    if name != "exact_diffusion":
        graph = topology.one_peer_exponential(n)
    tx = METHODS[name](graph, every=2)

    def own(x, target):
        traces.append(1)
        return x - target[0]

    for mesh in (mesh_of(n), emulate(n)):
        traces.clear()
        state = relaxjax.init(tx, jnp.zeros(5), mesh)
        step = relaxjax.data_parallel(helpers.step_of(own, tx), mesh)
        for _ in range(9):
            *state, _ = step(*state, targets_of(n).astype(np.float32))
        assert len(traces) == 1


@pytest.mark.few(3)
@methods
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_16_bits_are_averaged_in_float32(name, dtype):
    graph = graph_of(name, 3)
    tx = METHODS[name](graph)
    x = np.random.default_rng(1).normal(size=(3, 5)).astype(dtype)
    state = jax.vmap(tx.init, axis_name="data")(x)
    update = jax.vmap(tx.update, axis_name="data")
    moved, _ = jax.jit(update)(0 * x, state, x)
    assert moved.dtype == np.float32
    found = np.asarray(optax.apply_updates(x, moved), np.float32)
    wide = x.astype(np.float32)
    w = graph.matrix()
    expected = w @ wide / w.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found, expected, atol=0.02)


@pytest.mark.few(2)
@methods
def test_bytes_are_those_of_the_neighbors(name):
    n, params = 8, {"w": jnp.zeros((10, 4)), "b": jnp.zeros(3)}
    d = 43 + (name == "push_sum")
    graphs = [(topology.lazy(topology.ring(n)), 2)]
    if name != "exact_diffusion":
        graphs += [(topology.one_peer_exponential(n), 1)]
    for graph, degree in graphs:
        tx = METHODS[name](graph, every=3)
        sent = [relaxjax.wire_bytes(tx, params, emulate(n), start=t) for t in range(6)]
        twice = 2 if name in TRACKING else 1
        assert sent == [0, 0, twice * degree * 4 * d] * 2


def test_codes_that_lose_nothing_are_gossip():
    """A whole difference to the neighbors' copies, which are the models."""
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    whole = {"compressor": compression.identity(), "consensus_step_size": 1.0}
    coded: Any = relaxjax.gossip("data", topology.ring(4), **whole)
    plain: Any = relaxjax.gossip("data", topology.ring(4))

    def run(u):
        return [tx.update(u, tx.init(0 * u), 0 * u)[0] for tx in (coded, plain)]

    found, expected = jax.jit(jax.vmap(run, axis_name="data"))(x)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert np.abs(expected - x).max() > 0.1


def test_one_peer_sends_less_than_an_all_reduce():
    n, params = 8, {"w": jnp.zeros((64, 64))}
    tx = relaxjax.gossip("data", topology.one_peer_exponential(n))
    ring = relaxjax.wire_bytes(relaxjax.all_reduce("data"), params, emulate(n))
    sent = relaxjax.wire_bytes(tx, params, emulate(n))
    assert sent / ring == n / (2 * (n - 1))


def test_what_is_not_heard_does_not_matter():
    """A NaN of one worker comes to its neighbors, and to nobody else."""
    n = 5
    x = np.zeros((n, 2), np.float32)
    x[0] = np.nan
    for graph, sick in (
        (topology.ring(n), {0, 1, 4}),
        (topology.one_peer_exponential(n), {0, 1}),
        (topology.star(n), set(range(n))),
        (topology.metropolis(np.eye(n, k=1) + np.eye(n, k=-1)), {0, 1}),
    ):
        tx: Any = relaxjax.gossip("data", graph)

        def update(x, tx=tx):
            return x + tx.update(0 * x, tx.init(x), x)[0]

        emulated = jax.jit(jax.vmap(update, axis_name="data"))(x)
        on_devices = jax.pmap(update, axis_name="data", devices=jax.devices()[:n])(x)
        for found in (emulated, on_devices):
            bad = np.isnan(np.asarray(found)).any(axis=1)
            assert set(np.nonzero(bad)[0].tolist()) == sick


@methods
def test_params_and_state_may_be_donated_together(name):
    params = {"w": jnp.ones((2, 3)), "b": jnp.ones(3)}
    tx = METHODS[name](graph_of(name, 4))
    helpers.assert_no_shared_buffer((params, tx.init(params)))


def bare(name: str, n: int = 4, **how: Any) -> Any:
    arguments = {"axis_name": "data", "topology": graph_of(name, n), **NEEDED[name]}
    return getattr(relaxjax, name)(**(arguments | how))


@every_method
@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ({"axis_name": ("a", "b", "c")}, TypeError, "must be one axis, or two"),
        ({"topology": 4}, TypeError, "topology=4 must be one of relaxjax.topology"),
        ({"every": 0}, ValueError, "every=0 must be a whole number"),
        ({"every": 1.5}, ValueError, "every=1.5 must be a whole number"),
        ({"bucket_bytes": 0}, ValueError, "bucket_bytes=0 must be"),
    ],
)
def test_refuses_bad_arguments(name, how, error, message):
    with pytest.raises(error, match=message):
        bare(name, **how)


@every_method
def test_refuses_another_number_of_workers(name):
    tx = bare(name)
    x = jnp.zeros((3, 2))
    state = jax.vmap(tx.init)(x)  # where there is no axis to compare with
    with pytest.raises(ValueError, match="is of 4 workers, and the axis 'data' has 3"):
        jax.vmap(tx.update, axis_name="data")(x, state, x)
    with pytest.raises(ValueError, match="is of 4 workers, and the axis 'data' has 3"):
        jax.vmap(tx.init, axis_name="data")(x)


@every_method
def test_refuses_a_weight_and_a_call_outside_the_axis(name):
    method = bare(name)
    x = jnp.zeros(2)
    with pytest.raises(ValueError, match=f"{name}: weight= has no meaning here"):
        method.update(x, method.init(x), x, weight=1.0)
    with pytest.raises(NameError, match=f"{name}: no axis named 'data' here"):
        method.update(x, method.init(x), x)
    with pytest.raises(ValueError, match=f"{name}: the tree changed since init"):
        method.update({"x": x}, method.init(x), {"x": x})


@pytest.mark.parametrize("name", sorted({*NEEDED} - TRACKING))
def test_refuses_an_update_without_params(name):
    method = bare(name)
    x = jnp.zeros(2)
    with pytest.raises(ValueError, match=f"{name}: update needs params"):
        method.update(x, method.init(x))


@pytest.mark.parametrize("name", sorted({*NEEDED} - {"push_sum", "relay_sum"}))
def test_refuses_weights_that_keep_no_mean(name):
    with pytest.raises(ValueError, match=r"does not leave equal models.*push_sum"):
        bare(name, topology=lopsided(4))


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (topology.ring(8), r"eigenvalue -0.3333.*lazy"),
        (topology.hypercube(16), r"eigenvalue -0.6000.*lazy"),
        (topology.torus((4, 4)), r"eigenvalue -0.6000.*lazy"),
        (topology.exponential(8), "must be static and symmetric"),
        (topology.base_graph(6), "must be static and symmetric"),
    ],
)
def test_exact_diffusion_refuses_what_is_unstable(graph, message):
    with pytest.raises(ValueError, match=message):
        relaxjax.exact_diffusion("data", graph)


@pytest.mark.parametrize("momentum", [-0.1, 1.0])
def test_quasi_global_momentum_refuses_a_bad_momentum(momentum):
    with pytest.raises(ValueError, match=rf"momentum={momentum} must be in \[0, 1\)"):
        relaxjax.quasi_global_momentum("data", topology.ring(4), momentum=momentum)

"""NoLoCo against a list of workers; what it becomes at its ends, and its laws."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import emulate, noloco, topology
from relaxjax.topology import Topology
from tests import helpers, sharded
from tests.helpers import mesh_of, pulled, targets_of

RATE, INNER, STEPS = 0.1, 0.9, 30
ALPHA, BETA, GAMMA = 0.5, 0.7, 1.2
SGD = optax.sgd(RATE)


def reference(targets, graph: Topology, every: int) -> list[np.ndarray]:
    """Models of all workers after each step, by the paper's two sums."""
    n, d = targets.shape
    theta, velocity = [np.zeros(d) for _ in range(n)], [np.zeros(d) for _ in range(n)]
    phi, delta = [np.zeros(d) for _ in range(n)], [np.zeros(d) for _ in range(n)]
    seen = []
    for step in range(1, STEPS + 1):
        for i in range(n):
            velocity[i] = INNER * velocity[i] + (theta[i] - targets[i])
            theta[i] = theta[i] - RATE * velocity[i]
        if step % every == 0:
            w = graph.matrix(step // every - 1)
            moved = [theta[i] - phi[i] for i in range(n)]
            for i in range(n):
                ahead = sum(w[i, j] * moved[j] for j in range(n))
                near = sum(w[i, j] * phi[j] for j in range(n))
                delta[i] = ALPHA * delta[i] + BETA * ahead - GAMMA * (phi[i] - near)
            phi = [phi[i] + delta[i] for i in range(n)]
            theta = [x.copy() for x in phi]
        seen.append(np.stack(theta))
    return seen


def graphs_of(n: int) -> list[Topology]:
    """A graph whose rounds take turns, and a static one."""
    pairs = topology.random_matching(n, period=5) if n % 2 == 0 else None
    return [pairs or topology.base_graph(n), topology.ring(n)]


@pytest.mark.few(2)
@pytest.mark.parametrize("n", [2, 3, 5, 8])
@pytest.mark.parametrize("every", [1, 4])
def test_equals_a_list_of_workers(n, every):
    for graph in graphs_of(n):
        tx = noloco(
            optax.sgd(RATE, INNER),
            "data",
            graph,
            every,
            momentum=ALPHA,
            outer_learning_rate=BETA,
            pull=GAMMA,
        )
        expected = reference(targets_of(n), graph, every)
        for mesh in (emulate(n), mesh_of(n)):
            found = pulled(tx, targets_of(n), mesh, STEPS)
            for (x, _), ref in zip(found, expected, strict=True):
                np.testing.assert_allclose(x, ref, atol=2e-5)


@pytest.mark.parametrize("pull", [0.6, 1.0])
def test_on_the_complete_graph_it_is_diloco_with_heavy_ball(pull):
    """Whatever the pull, as all models are equal."""
    graph = topology.complete(4)
    tx = noloco(SGD, "data", graph, 3, momentum=0.6, outer_learning_rate=0.8, pull=pull)
    outer = optax.sgd(0.8, momentum=0.6)
    same = relaxjax.diloco(SGD, "data", 3, outer=outer)
    for step, ((x, _), (y, _)) in enumerate(
        zip(
            pulled(tx, targets_of(4), emulate(4), STEPS),
            pulled(same, targets_of(4), emulate(4), STEPS),
            strict=True,
        ),
        start=1,
    ):
        np.testing.assert_allclose(x, y, atol=2e-6)
        if step % 3 == 0:
            assert np.ptp(x, axis=0).max() < 2e-6


@pytest.mark.parametrize("every", [1, 3])
def test_without_momentum_it_is_gossip_of_the_models(every):
    inner, graph = optax.adam(0.01), topology.one_peer_exponential(8)
    tx = noloco(
        inner, "data", graph, every, momentum=0.0, outer_learning_rate=1.0, pull=1.0
    )
    same = optax.chain(inner, relaxjax.gossip("data", graph, every=every))
    for (x, _), (y, _) in zip(
        pulled(tx, targets_of(8), emulate(8), 12),
        pulled(same, targets_of(8), emulate(8), 12),
        strict=True,
    ):
        np.testing.assert_allclose(x, y, atol=1e-7)


def test_the_mean_slow_model_follows_heavy_ball():
    """Along the mean of how far workers moved, though they are apart."""
    every, targets = 3, targets_of(8)
    tx = noloco(SGD, "data", topology.ring(8), every)
    phi, delta = np.zeros((8, 5)), np.zeros(5)
    found = pulled(tx, targets, emulate(8), STEPS)
    for theta, state in found[every - 1 :: every]:
        x = phi
        for _ in range(every):
            x = x - RATE * (x - targets)
        delta = 0.5 * delta + 0.7 * (x - phi).mean(axis=0)
        slow = state[1].kept.slow
        expected = phi.mean(axis=0) + delta
        np.testing.assert_allclose(slow.mean(axis=0), expected, atol=2e-6)
        np.testing.assert_allclose(theta, slow, atol=1e-6)
        assert np.ptp(slow, axis=0).max() > 0.01
        phi = np.asarray(slow, np.float64)


@pytest.mark.parametrize(("pull", "dies"), [(2.2, True), (2.3, False)])
def test_disagreement_dies_out_within_the_bound(pull, dies):
    """A ring of 8 has the eigenvalue -1/3: gamma 4 / 3 < 2 (1 + 0.5) is 2.25."""
    tx: Any = noloco(optax.identity(), "data", topology.ring(8), 1, pull=pull)

    def run(x):
        def step(carry, _):
            x, state = carry
            moved, state = tx.update(0 * x, state, x)
            return (x + moved, state), x

        (x, _), _ = jax.lax.scan(step, (x, tx.init(x)), length=200)
        return x

    mode = np.where(np.arange(8) % 2, -1, 1).astype(np.float32)
    found = np.abs(jax.jit(jax.vmap(run, axis_name="data"))(mode)).max()
    assert found < 0.1 if dies else found > 10


@pytest.mark.few(2)
@pytest.mark.parametrize("where", [mesh_of, emulate])
def test_bytes_are_one_message_of_the_model_to_each_neighbor(where):
    params = {"w": jnp.zeros((10, 4)), "b": jnp.zeros(3)}
    for graph, degree in (
        (topology.random_matching(8, period=2), 1),
        (topology.ring(8), 2),
    ):
        tx = noloco(optax.adamw(1e-3), "data", graph, 3)
        each = [relaxjax.wire_bytes(tx, params, where(8), start=t) for t in range(6)]
        assert each == [0, 0, degree * 4 * 43] * 2


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_16_bits_are_averaged_in_float32(dtype):
    """Without momentum, and at rate 1, the result is W x."""
    graph = topology.ring(3)
    tx: Any = noloco(
        optax.identity(), "data", graph, 1, momentum=0.0, outer_learning_rate=1.0
    )
    x = np.random.default_rng(1).normal(size=(3, 5)).astype(dtype)
    state = jax.vmap(tx.init, axis_name="data")(x)
    moved, state = jax.jit(jax.vmap(tx.update, axis_name="data"))(0 * x, state, x)
    assert moved.dtype == np.float32
    assert state[1].kept.slow.dtype == np.float32
    wide = x.astype(np.float32)
    np.testing.assert_allclose(wide + moved, graph.matrix() @ wide, atol=1e-6)


def test_equal_models_stay_where_they_are():
    """To the bit, while no worker moves."""
    x = np.full((8, 3), 0.1, np.float32)
    tx: Any = noloco(optax.identity(), "data", topology.random_matching(8), 1)
    state = jax.vmap(tx.init, axis_name="data")(x)
    update = jax.vmap(lambda s, x: tx.update(0 * x, s, x)[0], axis_name="data")
    np.testing.assert_array_equal(jax.jit(update)(state, x), 0 * x)


def test_over_two_axes_hosts_gossip():
    """Inside a host all are equal, and hosts are as workers with the mean of each."""
    targets, graph = targets_of(6), topology.ring(3)
    two = relaxjax.emulate({"host": 3, "device": 2})
    tx = noloco(SGD, ("host", "device"), graph, 2)
    same = noloco(SGD, "data", graph, 2)
    hosts = targets.reshape(3, 2, -1).mean(axis=1)
    found = pulled(tx, targets, two, 8)
    expected = pulled(same, hosts, emulate(3), 8)
    for (x, _), (y, _) in list(zip(found, expected, strict=True))[1::2]:
        np.testing.assert_allclose(x, np.repeat(y, 2, axis=0), atol=1e-6)


@pytest.mark.long
def test_beside_tensor_parallelism_nothing_changes():
    """Except that it is refused without specs."""

    def made_with(specs: Any) -> Any:
        return noloco(SGD, "data", topology.ring(4), 2, specs=specs)

    mesh, data = sharded.mesh_of(4, 2), helpers.batches(4, rows=8)
    gradient = jax.grad(sharded.loss_fn)
    found = helpers.history(
        made_with(None), gradient, sharded.problem(), data, emulate(4)
    )
    tx, start = made_with(sharded.SPECS), sharded.sharded(sharded.problem(), mesh)
    state: list[Any] = [*relaxjax.init(tx, start, mesh, axis_name="data")]
    step = relaxjax.data_parallel(helpers.step_of(gradient, tx), mesh, axis_name="data")
    bare = helpers.step_of(gradient, made_with(None))
    with pytest.raises(ValueError, match=r"noloco: .*compiler shards.*specs="):
        relaxjax.data_parallel(bare, mesh, axis_name="data").lower(*state, data[0])
    for batch in data:
        *state, _ = step(*state, batch)
    params: Any = state[0]
    weight = params["layer1"]["w"]
    assert weight.sharding.shard_shape(weight.shape) == (1, 5, 4)
    assert relaxjax.spread(params) > 0
    helpers.assert_close(params, found[-1][0], 1e-5)


def test_state_is_as_large_as_stated():
    params = {"w": jnp.zeros((32, 32), jnp.bfloat16), "b": jnp.zeros(32)}
    tx = noloco(optax.identity(), "data", topology.ring(8), 4)
    floats = [x for x in jax.tree.leaves(tx.init(params)) if x.dtype == jnp.float32]
    assert sum(x.size for x in floats) == 2 * 33 * 32


def test_params_and_state_may_be_donated_together():
    params = {"w": jnp.ones((2, 3)), "b": jnp.ones(3)}
    tx = noloco(optax.adam(0.1), "data", topology.ring(4), 2)
    helpers.assert_no_shared_buffer((params, tx.init(params)))


def made(**how: Any) -> Any:
    arguments = {"axis_name": "data", "topology": topology.ring(4), "sync_every": 2}
    return noloco(optax.sgd(RATE), **(arguments | how))


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ({"sync_every": 0}, ValueError, "noloco: sync_every=0 must be a whole number"),
        ({"sync_every": 1.5}, ValueError, r"noloco: sync_every=1\.5 must be a whole"),
        ({"axis_name": ("a", "b", "c")}, TypeError, "noloco: .*one axis, or two"),
        ({"topology": 4}, TypeError, "noloco: topology=4 must be one of"),
        (
            {"topology": topology.from_column_stochastic([[1, 0.5], [0, 0.5]])},
            ValueError,
            "noloco: the topology .* does not leave equal models",
        ),
        ({"momentum": 1.0}, ValueError, r"noloco: momentum=1.0 must be in \[0, 1\)"),
        ({"momentum": -0.1}, ValueError, r"noloco: momentum=-0.1 must be in \[0, 1\)"),
        (
            {"pull": 0.0},
            ValueError,
            "noloco: pull=0.0 must be over 0, or slow models never meet; 1.0 takes",
        ),
        ({"pull": float("nan")}, ValueError, "noloco: pull=nan must be over 0"),
        ({"bucket_bytes": 0}, ValueError, "bucket_bytes=0 must be"),
    ],
)
def test_refuses_at_construction(how, error, message):
    with pytest.raises(error, match=message):
        made(**how)


def test_refuses_bad_calls():
    tx, x = made(), jnp.zeros(2)
    state = tx.init(x)
    with pytest.raises(ValueError, match="noloco: weight= has no meaning here"):
        tx.update(x, state, x, weight=1.0)
    with pytest.raises(ValueError, match="noloco: update needs params"):
        tx.update(x, state)
    with pytest.raises(ValueError, match="noloco: the tree changed since init"):
        tx.update({"x": x}, state, {"x": x})
    with pytest.raises(NameError, match="noloco: no axis named 'data' here"):
        tx.update(x, state, x)
    three = jnp.zeros((3, 2))
    states = jax.vmap(tx.init)(three)
    with pytest.raises(ValueError, match="is of 4 workers, and the axis 'data' has 3"):
        jax.vmap(tx.update, axis_name="data")(three, states, three)

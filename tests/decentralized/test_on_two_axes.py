"""Gossip between hosts of their means, and gossip beside tensor parallelism."""

from typing import Any

import jax
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import compression, emulate, topology
from tests import helpers, sharded
from tests.compiled_text import collectives
from tests.decentralized.test_methods import (
    METHODS,
    RATE,
    REFERENCES,
    SGD,
    STEPS,
    assert_same_ways,
    bare,
    graph_of,
    methods,
)
from tests.helpers import pulled, targets_of
from tests.workers.test_model_parallel import mesh_of

AXES = ("host", "device")


@pytest.mark.few(2)
@methods
@pytest.mark.parametrize(
    ("hosts", "devices"),
    [pytest.param(2, 2, marks=pytest.mark.slow), (3, 2), (2, 4), (1, 3)],
)
def test_hosts_gossip_with_their_means(name, hosts, devices):
    """That is a round with W (x) 11^T / m over all devices."""
    graph, targets = graph_of(name, hosts), targets_of(hosts * devices)
    inside = np.full((devices, devices), 1 / devices)
    w = np.kron(graph.matrix(), inside)
    expected = REFERENCES[name](targets, [w] * STEPS, RATE)
    tx = METHODS[name](graph, AXES)
    for mesh in (
        emulate(dict(zip(AXES, (hosts, devices), strict=True))),
        mesh_of(hosts, devices, AXES),
    ):
        assert_same_ways(pulled(tx, targets, mesh), expected)


@pytest.mark.few(1)
@pytest.mark.parametrize("every", [1, 2])
def test_hosts_take_turns(every):
    graph, targets = topology.one_peer_exponential(4), targets_of(8)
    inside = np.full((2, 2), 1 / 2)
    rounds = [
        np.kron(graph.matrix(t // every), inside) if t % every == every - 1 else None
        for t in range(STEPS)
    ]
    expected = REFERENCES["gossip"](targets, rounds, RATE)
    tx = METHODS["gossip"](graph, AXES, every=every)
    for mesh in (emulate({"host": 4, "device": 2}), mesh_of(4, 2, AXES)):
        assert_same_ways(pulled(tx, targets, mesh), expected)


def test_hosts_send_a_share_of_the_model_to_each_neighbor():
    params = {"w": np.zeros((10, 10), np.float32)}
    mesh = emulate({"host": 4, "device": 2})
    tx = relaxjax.gossip(AXES, topology.ring(4))
    x = jax.ShapeDtypeStruct((100,), np.float32)
    stated = relaxjax.collectives.hierarchical_neighbor_wire_bytes(
        x, topology.ring(4), 2
    )
    assert relaxjax.wire_bytes(tx, params, mesh) == stated == 4 * (2 * 50 + 2 * 50)


@pytest.mark.parametrize("name", ["dcd_psgd", "deep_squeeze", "moniqua", "relay_sum"])
def test_codes_and_relays_want_one_axis(name):
    with pytest.raises(TypeError, match=rf"{name}: .*must be one axis\. Inside hosts"):
        bare(name, axis_name=AXES)


def coded(name: str, n: int, specs: Any) -> Any:
    how: Any = {"compressor": compression.identity(), "consensus_step_size": 0.5}
    makers = {
        "choco": lambda: relaxjax.gossip("data", topology.ring(n), specs=specs, **how),
        "moniqua": lambda: bare(name, n, specs=specs),
        "relay_sum": lambda: bare(name, n, specs=specs),
        "dcd_psgd": lambda: bare(
            name, n, specs=specs, compressor=compression.identity()
        ),
        "deep_squeeze": lambda: bare(name, n, specs=specs, **how),
    }
    if name in makers:
        return optax.chain(SGD, makers[name]())
    return METHODS[name](graph_of(name, n), specs=specs)


every_method = pytest.mark.parametrize(
    "name", [*METHODS, "choco", "dcd_psgd", "deep_squeeze", "moniqua", "relay_sum"]
)


@pytest.mark.few(5)
@every_method
def test_refuses_leaves_that_the_compiler_shards_without_specs(name):
    mesh, tx = sharded.mesh_of(4, 2), coded(name, 4, None)
    start = sharded.sharded(sharded.problem(), mesh)
    with pytest.raises(ValueError, match=r"gather what the compiler shards.*specs="):
        relaxjax.init(tx, start, mesh, axis_name="data")


@pytest.mark.few(2)
@every_method
def test_beside_tensor_parallelism_nothing_changes(name):
    """And nothing but the model's own sums travels over its axis."""
    mesh, data = sharded.mesh_of(4, 2), helpers.batches(4, rows=8)
    gradient = jax.grad(sharded.loss_fn)
    alone = coded(name, 4, None)
    (expected, _), *_ = helpers.history(
        alone, gradient, sharded.problem(), data, emulate(4)
    )[::-1]
    tx = coded(name, 4, sharded.SPECS)
    start = sharded.sharded(sharded.problem(), mesh)
    state: list[Any] = [*relaxjax.init(tx, start, mesh, axis_name="data")]
    step = relaxjax.data_parallel(helpers.step_of(gradient, tx), mesh, axis_name="data")
    kinds = {"inside": set(), "across": set()}
    for kind, groups in collectives(helpers.optimized_hlo(step.lower(*state, data[0]))):
        across = any(len({d // 2 for d in group}) > 1 for group in groups)
        kinds["across" if across else "inside"].add(kind)
    assert kinds == {"inside": {"all-reduce"}, "across": {"collective-permute"}}
    for batch in data:
        *state, _ = step(*state, batch)
    params: Any = state[0]
    weight = params["layer1"]["w"]
    assert weight.sharding.shard_shape(weight.shape) == (1, 5, 4)
    assert relaxjax.spread(params) > 0
    helpers.assert_close(params, expected, 1e-5)

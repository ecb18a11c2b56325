"""Rounds of gossip alone: when one is due, what it sends, makes and refuses."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from relaxjax import topology
from relaxjax.decentralized._round import GossipSpec, gossip_transformation
from relaxjax.periods import rounds
from tests import sharded
from tests.helpers import assert_equal, mesh_of, stations_of

N = 4
GRAPH = topology.one_peer_exponential(N)  # of two rounds


def spec_of(every: int = 1, axis: Any = "data", graph: Any = GRAPH) -> GossipSpec:
    turns = rounds("test", "every", every, graph.period)
    return GossipSpec("test", axis, graph, turns, bucket_bytes=20, specs=None)


def models(*workers: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(*workers, 3)).astype(np.float32)


def test_steps_are_counted_modulo_the_rounds():
    spec, steps = spec_of(every=3), [jnp.int32(0)]
    for _ in range(6):
        steps.append(spec.next_step(steps[-1]))
    assert [int(t) for t in steps] == [0, 1, 2, 3, 4, 5, 0]
    due = [bool(spec.is_round_due(t)) for t in steps[:6]]
    assert due == [False, False, True] * 2
    assert spec_of().is_round_due(steps[0]) is True  # in Python: no conditional


def test_a_round_is_in_the_last_of_its_steps():
    spec, x = spec_of(every=2), models(N)

    def run(x):
        return [spec.change(x, jnp.int32(t)) for t in range(4)]

    found = jax.jit(jax.vmap(run, axis_name="data"))(x)
    for t, change in enumerate(found):
        expected = GRAPH.matrix(t // 2) @ x - x if t % 2 else 0 * x
        np.testing.assert_allclose(change, expected, atol=1e-6)


def test_hosts_mix_their_means():
    spec, x = spec_of(axis=("host", "device"), graph=topology.ring(3)), models(3, 2)
    inside = jax.vmap(lambda x: spec.change(x, jnp.int32(0)), axis_name="device")
    found = jax.jit(jax.vmap(inside, axis_name="host"))(x)
    means = np.tensordot(topology.ring(3).matrix(), x.mean(axis=1), 1)
    np.testing.assert_allclose(x + found, means[:, None] + 0 * x, atol=1e-6)


def test_a_message_comes_from_whom_the_pairs_say():
    x = {"a": models(N), "b": models(N)[:, 0]}
    receive = jax.vmap(
        lambda x: spec_of().received(x, [(0, 1), (1, 3)]), axis_name="data"
    )
    found = jax.jit(receive)(x)
    for k in x:
        nothing = 0 * x[k][0]
        assert_equal(found[k], np.stack([nothing, x[k][0], nothing, x[k][1]]))


def test_leaves_travel_in_messages_of_some_bytes():
    sizes = []

    def exchange(flat, bucket):
        sizes.append(flat.size)
        return flat, 2 * flat

    x = {"a": jnp.arange(3.0), "b": jnp.arange(5.0)}
    once, twice = spec_of().in_buckets(x, exchange, 2)
    assert sorted(sizes) == [3, 5]
    assert_equal(once, x)
    assert_equal(twice, jax.tree.map(lambda x: 2 * x, x))
    assert spec_of().in_buckets({}, exchange) == ({},)
    assert spec_of().in_buckets({}, exchange, 2) == ({}, {})


def test_a_rule_sees_updates_params_memory_and_step():
    def rule(updates, params, memory, step):
        return updates - params + memory + step, memory + 10

    def tripled(params: Any) -> Any:
        return 3 * params

    tx: Any = gossip_transformation(spec_of(every=2), tripled, rule)
    x, state, seen = jnp.float32(1), tx.init(jnp.float32(1)), []
    assert state.step.dtype == jnp.int32
    for _ in range(5):
        out, state = tx.update(x + 100, state, x)
        seen.append((float(out), int(state.step), float(state.kept)))
    steps, kept = [1, 2, 3, 0, 1], [13, 23, 33, 43, 53]
    outs = [100 + 3, 100 + 14, 100 + 25, 100 + 36, 100 + 43]
    assert seen == list(zip(outs, steps, kept, strict=True))


def sent(updates, params, memory, step):
    spec = spec_of()
    x, u = spec.as_float32(params, updates)
    return jax.tree.map(jnp.add, u, spec.change(x, step)), memory


SENT: Any = gossip_transformation(spec_of(), lambda x: (), sent)


def test_its_operations_are_known_to_be_of_models():
    assert stations_of(SENT, N) == {("test", "models", ("data",))}


def refused(x: Any, workers: int = N, **arguments: Any) -> None:
    good = {"updates": x, "state": SENT.init(x), "params": x}

    def update(_):
        return SENT.update(**(good | arguments))

    jax.eval_shape(jax.vmap(update, axis_name="data"), jnp.zeros(workers))


def test_refuses_bad_updates():
    x = {"w": jnp.zeros(3)}
    with pytest.raises(ValueError, match="test: weight= has no meaning here"):
        refused(x, weight=1.0)
    with pytest.raises(ValueError, match="test: the tree changed since init"):
        refused(x, updates={"v": x["w"]})
    with pytest.raises(ValueError, match="test: update needs params, which it aver"):
        refused(x, params=None)
    with pytest.raises(ValueError, match=r"test: .* of 4 workers, and .* has 3: make"):
        refused(x, workers=3)
    with pytest.raises(NameError, match="test: no axis named 'data' here"):
        spec_of().require_size()
    inner = jax.vmap(
        lambda x: spec_of(axis=("host", "data")).require_size(), axis_name="host"
    )
    with pytest.raises(NameError, match="test: no axis named 'data' here"):
        inner(jnp.zeros(N))


def test_refuses_what_is_equal_on_all_workers_or_sharded_by_the_compiler():
    x = {"w": jnp.zeros(N)}

    def require(x):
        spec.require(x)
        return x

    spec = spec_of()
    same = jax.shard_map(require, mesh=mesh_of(N), in_specs=P(), out_specs=P())
    with pytest.raises(ValueError, match="test: the update of leaf 'w' is already the"):
        jax.eval_shape(same, x)
    whole = P("data")
    beside = jax.shard_map(
        require,
        mesh=sharded.mesh_of(N, 2),
        in_specs=whole,
        out_specs=whole,
        axis_names={"data"},
    )
    with pytest.raises(ValueError, match="test: it packs leaves into flat buckets"):
        jax.eval_shape(beside, x)
    spec = spec._replace(specs=P())
    assert jax.eval_shape(beside, x)["w"].shape == (N,)


def test_what_is_sharded_shares_no_bucket_with_what_is_whole():
    """Else copies of a whole leaf would be rounded with neighbors that differ."""
    mesh = jax.make_mesh((2, 2), ("data", "model"))
    spec = spec_of(graph=topology.ring(2))._replace(
        bucket_bytes=1000, specs={"cut": P("model"), "whole": P()}
    )
    sizes = []

    def exchange(flat: jax.Array, bucket: jax.Array) -> tuple[jax.Array]:
        del bucket
        sizes.append(flat.size)
        return (flat,)

    x = {"cut": jnp.ones(4), "whole": jnp.ones(3)}
    with jax.set_mesh(mesh):
        spec.in_buckets(x, exchange)
    assert sorted(sizes) == [3, 4]

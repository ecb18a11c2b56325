"""specs=: communication of shards, beside tensor parallelism and islands."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import relaxjax
from relaxjax import all_reduce, wire_bytes
from tests import helpers
from tests.compiled_text import collectives
from tests.helpers import assert_close
from tests.sharded import SPECS, loss_fn, mesh_of, problem, sharded

ALGORITHMS = ["psum", "ring", "two_shot", "halving_doubling"]


@pytest.mark.long
@pytest.mark.few(2)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_tensor_parallel_training_equals_one_worker(algorithm):
    mesh = mesh_of(4, 2)
    optimizer = optax.adam(1e-2)
    reducer = all_reduce("data", algorithm=algorithm, specs=SPECS, bucket_bytes=64)
    tx = optax.chain(reducer, optimizer)
    data = helpers.batches(4, rows=8)
    params, state = relaxjax.init(tx, sharded(problem(), mesh), mesh, axis_name="data")
    step = relaxjax.data_parallel(
        helpers.step_of(jax.grad(loss_fn), tx), mesh, axis_name="data"
    )
    alone = jax.tree.map(jnp.asarray, problem())
    alone_state = optimizer.init(alone)
    for batch in data:
        params, state, _ = step(params, state, batch)
        grads = jax.grad(loss_fn)(alone, batch)
        updates, alone_state = optimizer.update(grads, alone_state, alone)
        alone = optax.apply_updates(alone, updates)
    assert relaxjax.spread(params) == 0.0
    assert_close(jax.tree.map(lambda x: x[0], params), alone, 1e-5)
    weight = params["layer1"]["w"]
    assert weight.sharding.shard_shape(weight.shape) == (1, 5, 4)  # as it was given


def reduce_on(mesh, tx):
    """The reducer alone, mapped over the workers, gradients sharded as the params."""

    def local(grads):
        grads = jax.tree.map(lambda g: g[0], grads)
        return jax.tree.map(lambda g: g[None], tx.update(grads, tx.init(grads))[0])

    mapped = jax.shard_map(
        local,
        mesh=mesh,
        in_specs=P("data"),
        out_specs=P("data"),
        axis_names={"data"},
        check_vma=False,
    )
    grads = jax.tree.map(
        lambda x, spec: jax.ShapeDtypeStruct(
            (mesh.shape["data"], *x.shape),
            x.dtype,
            sharding=NamedSharding(mesh, P("data", *spec)),
        ),
        problem(),
        SPECS,
    )
    return jax.jit(mapped).lower(grads)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_nothing_is_gathered_over_the_other_axis(algorithm):
    mesh = mesh_of(4, 2)
    tx = all_reduce("data", algorithm=algorithm, specs=SPECS)
    found = collectives(helpers.optimized_hlo(reduce_on(mesh, tx)))
    assert found
    for _, groups in found:  # device = 2 * (index on data) + (index on model)
        assert all(len({d % 2 for d in group}) == 1 for group in groups)


def test_psum_gathers_nothing_without_them():
    found = collectives(
        helpers.optimized_hlo(reduce_on(mesh_of(4, 2), all_reduce("data")))
    )
    assert found
    for _, groups in found:
        assert all(len({d % 2 for d in group}) == 1 for group in groups)


def test_bytes_are_those_of_a_shard():
    mesh, params = mesh_of(4, 2), problem()
    tx = all_reduce("data", algorithm="ring", specs=SPECS)
    # 5*8/2 + 8/2 + 8*3/2 + 3 = 39 elements on each device, in chunks of 10
    assert wire_bytes(tx, params, mesh, axis_name="data") == 2 * 3 * 10 * 4
    whole = all_reduce("data", algorithm="ring")
    lone = Mesh(np.asarray(jax.devices()[:4]), ("data",))
    assert wire_bytes(whole, params, lone) == 2 * 3 * 19 * 4


def test_weights_go_with_specs():
    mesh = mesh_of(4, 2)
    tx = all_reduce("data", algorithm="ring", specs={"w": P("model")})

    def step(grads, batch):
        weight = batch["weight"][0]
        updates, _ = tx.update(grads, tx.init(grads), weight=weight)
        return updates, {}

    values = np.array([1.0, np.nan, 3.0, 7.0], np.float32)
    grads = {"w": jnp.asarray(np.broadcast_to(values[:, None], (4, 6)))}
    run = relaxjax.data_parallel(step, mesh, axis_name="data")
    out, _ = run(grads, {"weight": np.array([2, 0, 1, 1], np.float32)})
    np.testing.assert_allclose(out["w"], np.full((4, 6), 3.0), rtol=1e-6)


def test_without_other_axes_they_change_nothing():
    tx, plain = (
        all_reduce("data", algorithm="ring", specs=specs) for specs in (SPECS, None)
    )

    def reduced(tx, seed):
        grads = jax.tree.map(lambda x: x * (1 + seed), problem())
        return tx.update(grads, tx.init(grads))[0]

    seeds = jnp.arange(3.0)
    ours, theirs = (
        jax.vmap(lambda s, tx=tx: reduced(tx, s), axis_name="data")(seeds)
        for tx in (tx, plain)
    )
    helpers.assert_equal(ours, theirs)


def test_an_island_keeps_its_state_in_shards():
    """Groups of four share params and moments (FSDP); updates cross groups once."""
    devices = np.asarray(jax.devices()[:8]).reshape(2, 4)
    mesh = Mesh(devices, ("replica", "fsdp"))
    specs = {"w": P("fsdp"), "b": P()}
    rng = np.random.default_rng(0)
    host = {
        "w": rng.normal(size=(8, 16)).astype(np.float32),
        "b": np.ones(16, np.float32),
    }
    params = jax.tree.map(
        lambda x, spec: jax.device_put(x, NamedSharding(mesh, spec)), host, specs
    )
    rows = rng.normal(size=(16, 8)).astype(np.float32)
    both = NamedSharding(mesh, P(("replica", "fsdp")))
    batch = jax.device_put(rows, both)

    def loss(params, batch):
        return jnp.mean((batch @ params["w"] + params["b"]) ** 2)

    tx: Any = optax.chain(all_reduce("replica", specs=specs), optax.adam(0.1))

    def train_step(params, state, batch):
        updates, state = tx.update(jax.grad(loss)(params, batch), state, params)
        return optax.apply_updates(params, updates), state, {}

    state: Any
    params, state = relaxjax.init(tx, params, mesh, axis_name="replica")
    step = relaxjax.data_parallel(train_step, mesh, axis_name="replica")
    program = helpers.optimized_hlo(step.lower(params, state, batch))
    for _ in range(3):
        moment = state[1][0].mu["w"]
        assert moment.sharding.shard_shape(moment.shape) == (1, 2, 16)
        params, state, _ = step(params, state, batch)
    across = [
        (kind, groups)
        for kind, groups in collectives(program)
        if any(len({d // 4 for d in group}) > 1 for group in groups)
    ]
    assert [kind for kind, _ in across] == ["all-reduce"]
    shard = 2 * 16 + 16
    sent = wire_bytes(tx, host, mesh, axis_name="replica")
    assert sent == 2 * 1 * shard // 2 * 4
    optimizer = optax.adam(0.1)
    alone = jax.tree.map(jnp.asarray, host)
    alone_state = optimizer.init(alone)
    for _ in range(3):
        updates, alone_state = optimizer.update(
            jax.grad(loss)(alone, rows), alone_state, alone
        )
        alone = optax.apply_updates(alone, updates)
    assert_close(jax.tree.map(lambda x: x[0], params), alone, 1e-5)


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        ({"w": P("model"), "b": P()}, r"does not match the tree.*\['b'\]"),
        ({"w": P(None, None, "model")}, r"leaf 'w'.*at most 2 entries"),
        ({"w": P("data")}, r"leaf 'w' names the axis 'data'.*\('model',\)"),
        ({"w": P("stage")}, r"leaf 'w' names the axis 'stage'"),
    ],
)
def test_specs_that_do_not_fit(specs, message):
    tx: Any = optax.chain(all_reduce("data", specs=specs), optax.sgd(0.1))
    mesh = mesh_of(2, 2)
    start = {"w": np.ones((4, 4))}
    with pytest.raises(ValueError, match=message):
        relaxjax.init(tx, start, mesh, axis_name="data")
    how = {"axis_name": "data", "reduced_in_step": True}  # `tx` is not looked into
    params, state = relaxjax.init(tx, start, mesh, **how)

    def step(params, state, batch):
        updates, state = tx.update(params, state, params)
        return optax.apply_updates(params, updates), state, batch.sum()

    run = relaxjax.data_parallel(step, mesh, axis_name="data")
    with pytest.raises(ValueError, match=message):
        run(params, state, np.ones(4))


def test_specs_that_are_needed():
    tx: Any = all_reduce("data", algorithm="ring")
    with pytest.raises(ValueError, match=r"algorithm='ring' packs leaves.*specs="):
        reduce_on(mesh_of(2, 2), tx)


def test_adasum_takes_none():
    with pytest.raises(ValueError, match="op='adasum' takes no specs="):
        all_reduce("data", op="adasum", specs=SPECS)

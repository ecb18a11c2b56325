"""Params that lie sharded inside an island, and a relaxation across islands."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import compression, emulate, fsdp
from tests import helpers
from tests.fsdp.forms import step_of
from tests.fsdp.test_gathered import odd
from tests.helpers import assert_close, assert_equal

MESH = {"island": 2, "data": 2}


@pytest.mark.long
def test_islands_of_shards():
    """Sharded inside, DiLoCo across: as DiLoCo of workers with whole params."""
    axes = {"island": 2, "data": 2}
    mesh = emulate(axes)
    data = helpers.batches(6, rows=24)
    tx = relaxjax.diloco(optax.sgd(0.1), "island", sync_every=3)
    loss = fsdp.gathered(helpers.loss_fn, "data")
    shards, opt_state = fsdp.init(tx, helpers.problem(), mesh, over="data")
    step = relaxjax.data_parallel(step_of(tx, loss), mesh)
    state = shards, opt_state, fsdp.init_state(loss, shards, mesh)
    whole = optax.chain(
        relaxjax.all_reduce("data"),
        relaxjax.diloco(optax.sgd(0.1), "island", sync_every=3),
    )
    expected, *_ = helpers.train(whole, mesh, data)
    for batch in data:
        *state, _ = step(*state, batch)
    assert_close(fsdp.whole(state[0]), relaxjax.consensus(expected), 1e-5)


def test_consensus_joins_slices():
    mesh = emulate({"island": 2, "data": 4})
    shards, _ = fsdp.init(optax.sgd(1.0), odd(), mesh, over="data")
    both = {"model": shards, "count": jnp.arange(8.0)}
    found = relaxjax.consensus(both)
    assert_equal(found["model"], odd())
    assert found["count"] == 3.5


def test_models_in_slices_are_compared_slice_by_slice():
    """Slices differ by right; islands that are apart are not one model."""
    params = {"w": jnp.arange(12.0).reshape(3, 4), "b": jnp.ones(5)}
    tx = relaxjax.diloco(optax.sgd(0.1), "island", sync_every=2)
    mesh = emulate({"island": 3, "data": 2})
    shards, _ = fsdp.init(tx, params, mesh, over="data")
    assert relaxjax.spread(shards) == 0
    assert relaxjax.consensus_distance(shards) == 0
    apart = jnp.repeat(jnp.array([0.0, 1.0, -2.0]), 2)
    moved = jax.tree.map(lambda x: x + apart[:, None] * (x != 0), shards)
    models = jax.tree.map(
        lambda x: x + jnp.array([0.0, 1.0, -2.0]).reshape(3, *[1] * x.ndim) * (x != 0),
        params,
    )
    assert relaxjax.spread(moved) == relaxjax.spread(models) == 3
    distance = relaxjax.consensus_distance(models)
    np.testing.assert_allclose(relaxjax.consensus_distance(moved), distance, rtol=1e-6)
    alone, _ = fsdp.init(optax.sgd(0.1), params, emulate(4))
    assert relaxjax.spread(alone) == relaxjax.consensus_distance(alone) == 0


def test_an_island_alone_is_the_relaxation_of_one():
    """As where a run of several islands goes on with one."""
    mesh = emulate({"island": 1, "data": 2})
    tx = relaxjax.diloco(optax.sgd(0.1), "island", sync_every=1, outer=optax.sgd(1.0))
    shards, state = fsdp.init(tx, {"w": jnp.arange(5.0)}, mesh, over="data")

    def train_step(shards, state, batch):
        grads = jax.grad(fsdp.gathered(lambda p, x: (p["w"] * x).sum(), "data"))(
            shards, batch
        )
        updates, state = tx.update(grads, state, shards)
        return optax.apply_updates(shards, updates), state, {}

    step = relaxjax.data_parallel(train_step, mesh)
    shards, *_ = step(shards, state, jnp.ones((2, 1)))
    np.testing.assert_allclose(fsdp.whole(shards)["w"], jnp.arange(5.0) - 0.1)


SHAPES = {"kernel": (8, 6), "filter": (2, 2, 3, 4), "odd": (5, 3), "bias": (6,)}
HELD = {"kernel": (4, 6), "filter": (2, 12), "odd": (8,), "bias": (3,)}


@pytest.mark.long
@pytest.mark.parametrize(
    "method",
    [
        lambda **how: relaxjax.power_sgd("island", rank=1, **how),
        lambda **how: relaxjax.acp_sgd("island", rank=1, bits=8, **how),
    ],
    ids=["power_sgd", "acp_sgd in 8 bits"],
)
def test_low_rank_across_is_of_the_rows_that_a_slice_holds(method):
    """As of plain arrays of those rows; a slice that ends within a row is a vector."""
    rng = np.random.default_rng(0)
    mesh = emulate({"island": 3, "data": 2})
    params = {k: rng.normal(size=s).astype("f4") for k, s in SHAPES.items()}
    tx: Any = optax.chain(method(), optax.sgd(1.0))
    shards, state = fsdp.init(tx, params, mesh, over="data")
    alone = jax.jit(jax.vmap(tx.update, axis_name="island"))
    own = tx.init({k: jnp.zeros(s) for k, s in HELD.items()})
    own = [jax.tree.map(lambda x: jnp.stack([x] * 3), own)] * 2  # of each slice

    def step(shards, state, moved, grads):
        del moved
        own = jax.tree.map(lambda g: g[0], grads)
        updates, state = tx.update(own, state, shards)
        return shards, state, updates, {}

    run = relaxjax.data_parallel(step, mesh)
    moved = shards
    for _ in range(3):
        grads = {k: rng.normal(size=(6, *s)).astype("f4") for k, s in HELD.items()}
        sliced = {
            k: fsdp.Shard(g.reshape(6, -1), SHAPES[k], 2) for k, g in grads.items()
        }
        _, state, moved, _ = run(shards, state, moved, sliced)
        for j in range(2):
            plain = {k: g[j::2] for k, g in grads.items()}
            expected, own[j] = alone(plain, own[j])
            for k, x in expected.items():
                found = np.asarray(moved[k].value)[j::2]
                np.testing.assert_allclose(found, x.reshape(3, -1), atol=1e-5)
    sent = relaxjax.wire_bytes(tx, shards, mesh)
    assert sent < relaxjax.wire_bytes(relaxjax.all_reduce("island"), shards, mesh)


def test_an_empty_leaf_is_no_farther_apart_than_nothing():
    params = {"w": jnp.ones((3, 2)), "none": jnp.zeros((0, 3))}
    shards, _ = fsdp.init(optax.sgd(0.1), params, relaxjax.emulate(2))
    assert relaxjax.spread(shards) == 0
    assert relaxjax.consensus_distance(shards) == 0
    assert relaxjax.consensus(shards)["none"].shape == (0, 3)


CLIP = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(1.0))


def global_norm(updates, params=None):
    """Of slices, by who knows of them."""
    del params
    squares = sum(jnp.sum(x**2) for x in jax.tree.leaves(updates))
    norm = jnp.sqrt(jax.lax.psum(squares, "data"))
    return jax.tree.map(lambda x: x / norm, updates)


BY_SLICE = {
    "before": lambda: optax.chain(CLIP, relaxjax.local_sgd("island", 10)),
    "inside": lambda: relaxjax.diloco(CLIP, "island", 10),
    "inside, by field": lambda: relaxjax.desynced(
        CLIP, "island", periods={"params": 2}
    ),
    "outer": lambda: relaxjax.diloco(
        optax.sgd(0.1), "island", 10, outer=optax.lamb(0.1)
    ),
    "layers": lambda: optax.chain(optax.lars(0.1), relaxjax.local_sgd("island", 10)),
    "skips": lambda: relaxjax.skip_nonfinite(
        relaxjax.diloco(optax.sgd(0.1), "island", 10), "island"
    ),
    "skips, inside": lambda: relaxjax.skip_nonfinite(
        relaxjax.diloco(CLIP, "island", 10), ("island", "data")
    ),
}
ISLANDS = {
    "codes": lambda: optax.chain(
        optax.adamw(0.1),
        relaxjax.local_sgd(
            "island", 10, compressor=compression.error_feedback(compression.sign())
        ),
    ),
    "lengths": lambda: relaxjax.diloco(optax.adam(0.1), "island", 10, merge="rda"),
    "low rank": lambda: optax.chain(
        relaxjax.power_sgd("island", rank=1), optax.sgd(0.1)
    ),
    "late": lambda: relaxjax.post_local_sgd(optax.adam(0.1), "island", 10, 20),
    "skips": lambda: relaxjax.skip_nonfinite(
        optax.chain(relaxjax.all_reduce("island"), optax.adam(0.1)), ("island", "data")
    ),
    "whole norm": lambda: relaxjax.diloco(
        optax.chain(optax.stateless(global_norm), optax.sgd(0.1)), "island", 10
    ),
}


@pytest.mark.parametrize("make", BY_SLICE.values(), ids=BY_SLICE)
def test_an_optimizer_of_whole_leaves_is_refused_inside_a_relaxation(make):
    """Each worker would take the norm of its own slice."""
    with pytest.raises(ValueError, match=r"depends on others"):
        fsdp.init(make(), {"w": jnp.zeros(2)}, emulate(MESH), over="data")


@pytest.mark.parametrize("make", ISLANDS.values(), ids=ISLANDS)
def test_what_a_relaxation_itself_does_is_not_the_optimizers(make):
    params = {"w": jnp.zeros((4, 3)), "b": jnp.zeros(3), "scale": jnp.ones(())}
    shards, _ = fsdp.init(make(), params, emulate(MESH), over="data")
    assert shards["w"].value.shape == (4, 6)

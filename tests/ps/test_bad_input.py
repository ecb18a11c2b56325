"""What parameter servers refuse, and what they say."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

import relaxjax
from relaxjax import compression, emulate, parameter_server, ps
from tests import helpers, sharded
from tests.helpers import mesh_of

SGD = optax.sgd(0.1)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"servers": 0}, r"servers=0 must be a whole number, 1 or more"),
        ({"servers": 1.5}, r"servers=1.5 must be a whole number"),
        ({"staleness": -1}, r"staleness=-1 must be a whole number, 0 or more"),
        ({"staleness": 0.5}, r"staleness=0.5 must be a whole number"),
        ({"staleness": [[0, -2]]}, r"delays hold -2, and must be 0 or more"),
        ({"staleness": [1, 2]}, r"must be whole numbers \[period, workers\]"),
        ({"compensation": 0.1}, r"compensation=0.1 with staleness=0: nothing is late"),
        ({"compensation": -1.0, "staleness": 1}, r"compensation=-1.0 must be 0 or"),
        ({"bucket_bytes": 0}, r"bucket_bytes=0 must be a positive number of bytes"),
        (
            {"compressor": compression.ef21(compression.top_k(0.1))},
            r"top_k.* with ef21 cannot do pulls: .* Use compression.error_feedback",
        ),
        (
            {"compressor": compression.econtrol(compression.top_k(0.1))},
            r"econtrol cannot do pulls",
        ),
        (
            {"compressor": compression.momentum_correction(compression.top_k(0.1))},
            r"cannot do pulls",
        ),
    ],
)
def test_at_construction(how, message):
    with pytest.raises(ValueError, match=message):
        parameter_server(SGD, "data", **how)


def test_what_is_not_an_axis():
    wrong: Any = 3
    with pytest.raises(TypeError, match="an axis name is a string, or a tuple"):
        parameter_server(SGD, wrong)


def test_what_is_not_a_compressor():
    sign: Any = "sign"
    with pytest.raises(TypeError, match="compressor='sign' is not a Compressor"):
        parameter_server(SGD, "data", compressor=sign)


def begin(tx, mesh=None, params=None):
    params = helpers.problem() if params is None else params
    return relaxjax.init(tx, params, mesh or emulate(4))


def test_more_servers_than_leaves():
    message = r"servers=8 and the params have 4 leaves: .* at most servers=4"
    with pytest.raises(ValueError, match=message):
        begin(parameter_server(SGD, "data", servers=8), emulate(8))
    with pytest.raises(ValueError, match=message):
        ps.init(SGD, helpers.problem(), emulate(8), servers=8)


def test_servers_that_do_not_divide():
    message = r"servers=3 must divide the 8 workers of axis 'data', .*: 1, 2, 4, 8"
    with pytest.raises(ValueError, match=message):
        begin(parameter_server(SGD, "data", servers=3), emulate(8))
    with pytest.raises(ValueError, match=message):
        ps.init(SGD, helpers.problem(), mesh_of(8), servers=3)


@pytest.mark.parametrize(
    ("order", "message"),
    [
        (["scale"], r"order misses leaves \['layer1/b', 'layer1/w', 'layer2/w'\]"),
        (["scale", "scale", "layer1/b", "layer1/w", "layer2/w"], r"order repeats leaf"),
        (["x", "scale", "layer1/b", "layer1/w", "layer2/w"], r"order has unknown leaf"),
    ],
)
def test_invalid_orders(order, message):
    tx = parameter_server(SGD, "data", order=order)
    with pytest.raises(ValueError, match=message):
        begin(tx)
    with pytest.raises(ValueError, match=message):  # before any step
        jax.vmap(lambda _: tx.init(helpers.problem()), axis_name="data")(np.ones(4))
    loss = ps.pulled(helpers.loss_fn, "data", order=order)
    shards, _ = ps.init(SGD, helpers.problem(), emulate(2))
    batch = helpers.batches(1, rows=2)[0]
    step = relaxjax.data_parallel(lambda s, b: (s, loss(s, b)), emulate(2))
    with pytest.raises(ValueError, match=message):
        step(shards, batch)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "optimizer",
    [
        optax.lamb(1e-3),
        optax.adafactor(1e-3, min_dim_size_to_factor=2),
        optax.contrib.muon(1e-3),
        optax.chain(optax.clip_by_global_norm(1.0), SGD),
        optax.chain(optax.normalize_by_update_norm(), SGD),
        optax.apply_if_finite(SGD, 3),
        optax.chain(optax.add_noise(0.1, 0.5, jax.random.key(0)), SGD),
    ],
)
def test_optimizers_that_mix_elements(optimizer):
    message = "the optimizer's update of an element depends on others"
    with pytest.raises(ValueError, match=message):
        begin(parameter_server(optimizer, "data"))
    with pytest.raises(ValueError, match=message):
        ps.init(optimizer, helpers.problem(), emulate(2))


MIXERS = {
    "sum": lambda u: u - jnp.mean(u),
    "cumsum": lambda u: jnp.cumsum(u, axis=-1),
    "sort": lambda u: jnp.sort(u, axis=-1),
    "flip": jnp.flip,
    "roll": lambda u: jnp.roll(u, 1),
    "transpose": lambda u: u.T,
    "product": lambda u: u @ u,
    "pick": lambda u: u[jnp.array([1, 0, 2])],
    "put": lambda u: u.at[jnp.array([0, 1])].set(u[0, 0]),
    "largest": lambda u: u * (u == jnp.max(u)),
    "a row": lambda u: u.at[0].multiply(0.0),
    "most of a row": lambda u: u.at[0].max(u[1]),
    "applied to a row": lambda u: u.at[0].apply(jnp.sign),
    "by row": lambda u: jnp.where(jnp.arange(3)[:, None] == 0, 0.0, u),
    "by number": lambda u: u * jnp.arange(u.size).reshape(u.shape),
    "smoothed": lambda u: jax.lax.reduce_window(
        u, 0.0, jax.lax.add, (3, 3), (1, 1), "SAME"
    ),
    "by the host": lambda u: jax.pure_callback(
        lambda x: x / np.abs(x).max(), jax.ShapeDtypeStruct(u.shape, u.dtype), u
    ),
    "in a jit": jax.jit(lambda u: u - jnp.max(u, axis=0)),
    "in a loop": lambda u: jax.lax.fori_loop(0, 3, lambda _, u: u @ u, u),
    "in a scan": lambda u: jax.lax.scan(lambda u, _: (u.T, None), u, None, length=2)[0],
    "in a branch": lambda u: jax.lax.cond(True, jnp.flip, lambda u: u, u),
}


@pytest.mark.parametrize("mix", MIXERS.values(), ids=MIXERS)
def test_whatever_mixes_elements_is_seen(mix):
    mixing = optax.stateless(lambda updates, params: jax.tree.map(mix, updates))
    params = {"w": jnp.ones((3, 3))}
    with pytest.raises(ValueError, match="an element depends on others"):
        ps.init(mixing, params, emulate(2))


FACTORS = {
    "a table of rates": lambda: jnp.sum((jnp.arange(4) == 2) * jnp.ones(4)),
    "one of a list": lambda: jnp.linspace(0.0, 1.0, 5)[3],
    "a single place": lambda: 1.0 + jnp.arange(1)[0],
}


@pytest.mark.parametrize("factor", FACTORS.values(), ids=FACTORS)
def test_places_that_are_not_those_of_elements_are_taken(factor):
    """A number that is made of places is the same for each slice."""
    scaled = optax.stateless(lambda g, p: jax.tree.map(lambda x: x * factor(), g))
    state = ps.init(scaled, {"w": jnp.ones((3, 3))}, emulate(2))
    assert jax.tree.leaves(state)[0].shape[0] == 2


@pytest.mark.parametrize(
    "optimizer",
    [
        optax.chain(relaxjax.all_reduce("data"), SGD),
        optax.chain(SGD, relaxjax.local_sgd("data", 4)),
        relaxjax.diloco(SGD, "data", 4),
        parameter_server(SGD, "data"),
    ],
)
def test_a_relaxation_inside_is_refused(optimizer):
    """It would bring slices of different leaves together, without any other sign."""
    with pytest.raises(ValueError, match="parameter_server: there is a relaxation in"):
        begin(parameter_server(optimizer, "data"))


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "optimizer",
    [
        optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 1e-3, 5, 50)),
        optax.chain(optax.clip(1.0), optax.rmsprop(1e-3, momentum=0.9)),
        optax.lion(1e-3),
        optax.inject_hyperparams(optax.adam)(1e-3),
        optax.adam(optax.piecewise_interpolate_schedule("linear", 1e-3, {4: 0.5})),
        optax.partition(
            {"a": optax.sgd(0.1), "b": optax.adam(0.1)},
            {"layer1": {"w": "a", "b": "b"}, "layer2": {"w": "b"}, "scale": "a"},
        ),
        optax.MultiSteps(SGD, 2).gradient_transformation(),
    ],
)
def test_elementwise_optimizers_are_taken(optimizer):
    """And equal those of one worker."""
    data = helpers.batches(3, rows=8)
    params, _, _ = helpers.train(parameter_server(optimizer, "data"), emulate(4), data)
    alone, _ = helpers.train_alone(optimizer, data)
    helpers.assert_close(jax.tree.map(lambda x: x[0], params), alone, 1e-5)


@pytest.mark.parametrize("dtype", [np.int32, np.bool_])
def test_leaves_without_a_mean(dtype):
    params = {"a": np.zeros(3, dtype)}
    with pytest.raises(
        ValueError, match=r"leaf 'a' is (int32|bool), which has no mean"
    ):
        begin(parameter_server(SGD, "data"), params=params)
    with pytest.raises(
        ValueError, match=r"leaf 'a' is (int32|bool), which has no mean"
    ):
        ps.init(SGD, params, emulate(2))


def test_codes_with_fewer_servers():
    compressor = compression.sign()
    tx = parameter_server(SGD, "data", servers=2, compressor=compressor)
    with pytest.raises(ValueError, match=r"compressor= with servers=2 on 4 workers"):
        begin(tx)
    tx = parameter_server(SGD, ("host", "device"), compressor=compressor)
    with pytest.raises(ValueError, match=r"further axes \('host',\)"):
        begin(tx, emulate({"host": 2, "device": 2}))


def test_outside_the_axis():
    tx = parameter_server(SGD, "data")
    with pytest.raises(NameError, match=r"parameter_server: no axis named 'data' here"):
        tx.init(helpers.problem())
    loss = ps.pulled(helpers.loss_fn, "nowhere")
    shards, _ = ps.init(SGD, helpers.problem(), emulate(2))
    with pytest.raises(NameError, match=r"ps.pulled: no axis named 'nowhere' here"):
        loss(shards, helpers.batches(1, rows=2)[0])


def test_no_params_and_other_trees():
    tx = parameter_server(SGD, "data")
    state = begin(tx)

    def without(params, opt_state, batch):
        del batch
        return params, tx.update(params, opt_state)[1], {}

    def other(params, opt_state, batch):
        del batch
        grads = {"w": params["scale"]}
        return params, tx.update(grads, opt_state, grads)[1], {}

    for step, message in (
        (without, "update needs params, of which servers hold slices"),
        (other, "parameter_server: the tree changed since init"),
    ):
        with pytest.raises(ValueError, match=message):
            relaxjax.data_parallel(step, emulate(4))(*state, np.zeros(4))


def test_params_that_are_not_shards():
    loss = ps.pulled(helpers.loss_fn, "data")
    message = "ps.pulled: the params are not shards but .*relaxjax.ps.init"
    with pytest.raises(ValueError, match=message):
        loss(helpers.problem(), helpers.batches(1, rows=2)[0])
    with pytest.raises(ValueError, match=r"\(none at all\)"):
        loss({}, helpers.batches(1, rows=2)[0])
    with pytest.raises(ValueError, match=r"ps.whole: the tree has no Shard"):
        ps.whole(helpers.problem())


def test_shards_of_another_number_of_workers():
    loss = ps.pulled(helpers.loss_fn, "data")
    shards, _ = ps.init(SGD, helpers.problem(), emulate(4))
    step = relaxjax.data_parallel(lambda s, b: (s, loss(s, b)), emulate(2))
    shards = jax.tree.map(lambda x: x[:2], shards)
    with pytest.raises(ValueError, match=r"servers=4 must divide the 2 workers"):
        step(shards, helpers.batches(1, rows=2)[0])


@pytest.mark.parametrize(
    ("compressor", "message"),
    [
        (None, "parameter_server: leaf 'w' is int32"),
        (compression.sign(), "leaf 'w' is int32, and sign compresses"),
    ],
)
def test_leaves_that_have_no_mean(compressor, message):
    tx: Any = parameter_server(SGD, "data", compressor=compressor)
    whole = {"w": jnp.zeros((2, 3), jnp.int32)}
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(jax.vmap(tx.init, axis_name="data"), whole)


def test_gradients_that_are_already_reduced():
    tx: Any = parameter_server(SGD, "data")

    def update(x):
        return tx.update(x, tx.init(x), x)[0]

    same = jax.shard_map(update, mesh=mesh_of(2), in_specs=P(), out_specs=P("data"))
    with pytest.raises(ValueError, match=r"parameter_server: .* 'w' is already the s"):
        jax.eval_shape(same, {"w": jnp.zeros(4)})


def test_beside_a_compilers_axis():
    """Slices of flat leaves would gather what the compiler shards."""
    mesh = sharded.mesh_of(2, 2)
    tx = parameter_server(SGD, "data")
    start = {"w": jnp.zeros((4, 4))}
    with pytest.raises(ValueError, match="sharding over servers packs leaves"):
        relaxjax.init(tx, start, mesh, axis_name="data")
    how = {"axis_name": "data", "reduced_in_step": True}  # `tx` is not looked into
    state = relaxjax.init(tx, start, mesh, **how)
    step = relaxjax.data_parallel(
        helpers.step_of(lambda p, b: p, tx), mesh, axis_name="data"
    )
    with pytest.raises(ValueError, match="sharding over servers packs leaves"):
        step(*state, np.zeros(4))

"""With staleness 0 both forms are an all-reduce and the same optimizer."""

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import compression, emulate, ps
from tests import helpers
from tests.helpers import assert_close, assert_equal, mesh_of
from tests.ps.forms import FORMS, reduced, step_of, train

OPTIMIZERS = {
    "sgd": optax.sgd(0.1),
    "momentum": optax.sgd(0.1, momentum=0.9),
    "adam": optax.adam(1e-2),
}
DATA = helpers.batches(20, rows=24)

forms = pytest.mark.parametrize("form", FORMS)
optimizers = pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)


def wider(dtype=np.float32):
    """Params of as many leaves as the most servers, some of them empty."""
    more = {f"unused{i}": np.full((i, 3), 0.5, dtype) for i in range(4)}
    return {**helpers.problem(dtype=dtype), **more}


@pytest.mark.long
@pytest.mark.few(1)
@forms
@optimizers
@pytest.mark.parametrize("servers", [1, 2, 4, 8])
def test_any_number_of_servers(form, optimizer, servers):
    expected = reduced(optimizer, mesh_of(8), DATA, start=wider())
    how = {"servers": servers, "start": wider()}
    assert_close(train(form, optimizer, mesh_of(8), DATA, **how), expected, 1e-6)
    assert_close(train(form, optimizer, emulate(8), DATA, **how), expected, 1e-6)


@pytest.mark.long
@pytest.mark.few(2)
@forms
@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_any_number_of_workers(form, n):
    data = helpers.batches(5, rows=30)
    expected = reduced(OPTIMIZERS["sgd"], mesh_of(n), data)
    for mesh in (mesh_of(n), emulate(n)):
        assert_close(train(form, OPTIMIZERS["sgd"], mesh, data), expected, 1e-6)


@pytest.mark.slow
@forms
def test_servers_on_the_inner_of_two_axes(form):
    axes, data = ("host", "device"), DATA[:5]
    mesh = jax.sharding.Mesh(np.asarray(jax.devices()[:8]).reshape(2, 4), axes)
    emulated = emulate({"host": 2, "device": 4})
    expected = reduced(OPTIMIZERS["sgd"], mesh, data, axis_name=axes)
    for servers in (1, 2, None):
        for where in (mesh, emulated):
            how = {"axis_name": axes, "servers": servers}
            found = train(form, OPTIMIZERS["sgd"], where, data, **how)
            assert_close(found, expected, 1e-6)


@pytest.mark.slow
@forms
def test_order_and_size_of_transfers_change_no_bit(form):
    start = wider()
    names = sorted(relaxjax.schedule.plan_groups(start)[0].segments)
    order = [s.name for s in names] + ["unused0"]
    found = [
        train(form, OPTIMIZERS["adam"], mesh_of(4), DATA[:3], start=start, **how)
        for how in (
            {},
            {"bucket_bytes": 1},
            {"order": order[::-1], "bucket_bytes": 1},
            {"order": order, "bucket_bytes": 60},
        )
    ]
    for other in found[1:]:
        assert_equal(other, found[0])


@pytest.mark.few(2)
@forms
def test_decay_sees_the_params(form):
    optimizer = optax.adamw(1e-2, weight_decay=0.3)
    expected = reduced(optimizer, mesh_of(4), DATA[:5])
    assert_close(train(form, optimizer, mesh_of(4), DATA[:5]), expected, 1e-6)


@pytest.mark.few(2)
@forms
@pytest.mark.parametrize("servers", [2, 4])
@pytest.mark.parametrize("where", ["mesh", "emulated"])
def test_narrow_means_are_rounded_once(form, servers, where):
    """Values of 16 bits are added in float32, whatever the backend would do."""
    mesh = mesh_of(4) if where == "mesh" else emulate(4)
    rng = np.random.default_rng(0)
    start = {k: np.zeros((3, 3), ml_dtypes.bfloat16) for k in "abcd"}
    data = rng.normal(size=(4, 3, 3)).astype(ml_dtypes.bfloat16)

    def loss(params, batch):
        return sum((x * batch[0]).sum(dtype=jnp.float32) for x in params.values())

    tx = optax.sgd(1.0)
    if form == "pulled":
        step = step_of(tx, ps.pulled(loss, "data"))
        state = ps.init(tx, start, mesh, servers=servers)
    else:
        tx = relaxjax.parameter_server(tx, "data", servers=servers)
        step, state = step_of(tx, loss), relaxjax.init(tx, start, mesh)
    params, *_ = relaxjax.data_parallel(step, mesh)(*state, data)
    model = ps.whole(params) if form == "pulled" else relaxjax.consensus(params)
    mean = np.mean(data.astype(np.float32), axis=0)
    expected = np.negative(mean).astype(ml_dtypes.bfloat16)
    assert_equal(model["a"], expected)
    assert model["a"].dtype == ml_dtypes.bfloat16


def test_a_transfer_has_one_dtype():
    start = {"a": np.ones(3, np.float32), "b": np.ones(5, np.float16)}
    start |= {"c": np.ones(2, np.float32)}
    data = np.arange(8, dtype=np.float32).reshape(4, 2)

    def loss(params, batch):
        return sum(
            batch.mean() * jnp.sum(x.astype(jnp.float32)) for x in params.values()
        )

    step = step_of(optax.sgd(0.5), ps.pulled(loss, "data"))
    state = ps.init(optax.sgd(0.5), start, mesh_of(4))
    params, *_ = relaxjax.data_parallel(step, mesh_of(4))(*state, data)
    model = ps.whole(params)
    for name, x in start.items():
        assert model[name].dtype == x.dtype
        np.testing.assert_allclose(model[name], np.full(x.shape, 1 - 0.5 * 3.5))


@pytest.mark.parametrize("servers", [2, 4])
def test_means_by_weight(servers):
    """As of `all_reduce`; a worker without examples may hold NaN."""
    weights = np.array([1.0, 3.0, 0.0, 4.0], np.float32)
    gradients = np.arange(20, dtype=np.float32).reshape(4, 5)
    gradients[2] = np.nan
    start = {"a": jnp.zeros(5), "b": jnp.zeros(5), "c": jnp.zeros(5), "d": jnp.zeros(5)}
    tx = relaxjax.parameter_server(optax.sgd(1.0), "data", servers=servers)
    mesh = emulate(4)

    def step(params, state, batch):
        grads = jax.tree.map(lambda _: batch["g"][0], params)
        updates, state = tx.update(grads, state, params, weight=batch["w"][0])
        return optax.apply_updates(params, updates), state, {}

    state = relaxjax.init(tx, start, mesh)
    batch = {"g": gradients, "w": weights}
    params, *_ = relaxjax.data_parallel(step, mesh)(*state, batch)
    expected = -(weights[[0, 1, 3]] @ gradients[[0, 1, 3]]) / 8
    np.testing.assert_allclose(params["c"][1], expected, rtol=1e-6)
    assert relaxjax.spread(params) == 0.0


def updates_of(gradients: list[float], weights: Any = None, **how: Any) -> np.ndarray:
    """Of a param in float16, of every worker."""
    tx: Any = relaxjax.parameter_server(optax.sgd(-1.0), "data", **how)

    def update(g, w):
        x = jnp.zeros(1, jnp.float16)
        return tx.update(g, tx.init(x), x, weight=w)[0]

    gs = jnp.asarray(gradients, jnp.float16)[:, None]
    w = None if weights is None else jnp.asarray(weights)
    return np.asarray(jax.vmap(update, axis_name="data")(gs, w), np.float64)[:, 0]


def test_float16_is_divided_first_by_weight_alone():
    """4 w g / sum w is out of its range, and a quarter of its least number is 0."""
    large = [1.0, 1.0, 4e4, 4e4]
    np.testing.assert_array_equal(updates_of(large, [0.0, 0.0, 1.0, 1.0]), [4e4] * 4)
    np.testing.assert_array_equal(updates_of([2.0**-24] * 4), [2.0**-24] * 4)


def test_codes_of_float16_are_divided_once():
    exact = {"compressor": compression.identity()}
    found = updates_of([1.0, 2.0, 3.0, 6.0], [1.0, 1.0, 0.0, 2.0], **exact)
    np.testing.assert_array_equal(found, [15 / 4] * 4)


def test_the_state_holds_the_number_of_servers():
    """Outside the axis, where optax asks without leaves, there are none."""
    tx: Any = relaxjax.parameter_server(optax.sgd(0.1), "data", servers=2)
    state = jax.vmap(tx.init, axis_name="data")({k: jnp.zeros((4, 3)) for k in "ab"})
    np.testing.assert_array_equal(state.servers, [2] * 4)
    assert tx.init({}).servers == 0


def test_init_sees_that_all_updates_are_synchronized():
    """And so would see one that is not, whatever the number of transfers."""
    for servers in (1, 2, None):
        how = {"servers": servers, "bucket_bytes": 1}
        tx = relaxjax.parameter_server(optax.sgd(0.1), "data", **how)
        some = {"layer1": False, "layer2": True, "scale": True}
        with pytest.raises(ValueError, match=r"nothing synchronizes .*layer1/b"):
            relaxjax.init(optax.masked(tx, some), helpers.problem(), mesh_of(4))


def test_its_operations_are_known_to_be_all_in_one():
    tx = relaxjax.parameter_server(optax.sgd(0.1), "data", servers=1)
    assert helpers.stations_of(tx) == {("parameter_server", "optimizer", ("data",))}

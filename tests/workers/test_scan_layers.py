"""scan_layers: a layer's gradient travels while the next layer's is computed."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

import relaxjax
from relaxjax import all_reduce, emulate, scan_layers, wire_bytes
from relaxjax.programs import parse
from tests import helpers
from tests.compiled_text import needs
from tests.helpers import assert_close, mesh_of
from tests.layered import (
    LAYERS,
    WIDTH,
    WORKERS,
    after_backward,
    data,
    feedback,
    layer,
    layers,
    scanned_loss,
    trained,
)


def loss(params, x, reducer=None, **extra):
    reducer = reducer or all_reduce("data")
    return jnp.mean(scan_layers(layer, params, x, reducer, **extra) ** 2)


@pytest.mark.few(1)
@pytest.mark.parametrize("place", [mesh_of, emulate], ids=["mesh", "emulated"])
def test_equals_the_reduction_after_the_backward_pass(place):
    ours = trained(jax.grad(loss), optax.sgd(0.5), place(WORKERS))
    assert_close(ours, after_backward(), 1e-5)


def test_forward_is_a_scan():
    x = data()
    one = jax.vmap(loss, (None, 0), axis_name="data")(layers(), x[None])
    np.testing.assert_array_equal(one[0], scanned_loss(layers(), x))


@pytest.mark.slow
def test_one_layer():
    params = jax.tree.map(lambda p: p[:1], layers())
    x = jnp.asarray(data()).reshape(WORKERS, -1, WIDTH)
    ours = jax.vmap(jax.grad(loss), (None, 0), axis_name="data")(params, x)
    every = [jax.grad(scanned_loss)(params, rows) for rows in x]
    mean = jax.tree.map(lambda *g: np.mean(g, 0), *every)
    assert_close(jax.tree.map(lambda g: g[0], ours), mean, 1e-5)


def test_layers_may_be_rematerialized():
    def remat(params, x):
        out = scan_layers(jax.checkpoint(layer), params, x, all_reduce("data"))
        return jnp.mean(out**2)

    ours = trained(jax.grad(remat), optax.sgd(0.5), mesh_of(WORKERS))
    assert_close(ours, after_backward(), 1e-5)


def test_the_last_microbatch_reduces_what_the_others_gathered():
    def microbatched(params, x):
        first, last = jnp.split(x, 2)
        gathered = jax.grad(scanned_loss)(params, first)
        grads = jax.grad(loss)(params, last, accumulated=gathered)
        return jax.tree.map(lambda g: g / 2, grads)

    ours = trained(microbatched, optax.sgd(0.5), mesh_of(WORKERS))
    assert_close(ours, after_backward(), 1e-5)


@pytest.mark.slow
def test_weights_give_the_mean_over_examples():
    x = jnp.asarray(data()).reshape(WORKERS, -1, WIDTH)
    weight = jnp.asarray([2.0, 0.0, 1.0, 5.0])

    def late(x, weight):
        return jax.grad(loss)(layers(), x, weight=weight)

    ours = jax.vmap(late, axis_name="data")(x, weight)
    every = [jax.grad(scanned_loss)(layers(), rows) for rows in x]
    mean = jax.tree.map(lambda *g: np.average(g, 0, np.asarray(weight)), *every)
    mean = jax.tree.map(lambda g: g.astype(np.float32), mean)
    assert_close(jax.tree.map(lambda g: g[1], ours), mean, 1e-5)


@pytest.mark.slow
def test_each_layer_keeps_its_residual():
    """The same as the reducer after the backward pass, which has all layers at once."""
    tx: Any = feedback()
    params = jax.tree.map(jnp.asarray, layers())

    def late(x):
        state: Any = jax.vmap(tx.init)(params)
        grads: Any = params
        for _ in range(3):
            grads, state = jax.grad(
                lambda p, s: loss(p, x, tx, state=s), argnums=(0, 1)
            )(params, state)
        return grads, state

    def after(x):
        state, grads = tx.init(params), params
        for _ in range(3):
            grads, state = tx.update(jax.grad(scanned_loss)(params, x), state)
        return grads, state

    x = 8 * jnp.asarray(data()).reshape(WORKERS, -1, WIDTH)
    ours, theirs = (jax.vmap(f, axis_name="data")(x) for f in (late, after))
    assert float(jnp.abs(theirs[1].residual["w"]).max()) > 0
    assert_close(ours, theirs, 1e-5)


def test_bytes_are_those_of_a_layer_more():
    tx = optax.sgd(0.5)
    mesh = mesh_of(WORKERS)
    params, state = relaxjax.init(tx, layers(), mesh, reduced_in_step=True)
    gradient = jax.grad(lambda p, x: loss(p, x, all_reduce("data", algorithm="ring")))
    step = relaxjax.data_parallel(helpers.step_of(gradient, tx), mesh)
    one = jax.tree.map(lambda p: p[0], layers())
    per_layer = wire_bytes(all_reduce("data", algorithm="ring"), one, mesh)
    sent = relaxjax.compiled_wire_bytes(step, params, state, data())
    assert sent == (LAYERS + 1) * per_layer


def test_what_a_turn_sends_does_not_wait_for_what_it_computes():
    """In the loop's body the operand of the transfer is the body's argument."""
    tx = optax.sgd(0.5)
    mesh = mesh_of(WORKERS)
    params, state = relaxjax.init(tx, layers(), mesh, reduced_in_step=True)
    step = relaxjax.data_parallel(helpers.step_of(jax.grad(loss), tx), mesh)
    program = parse(helpers.optimized_hlo(step.lower(params, state, data())))
    (body,) = [
        body
        for name, body in program.computations.items()
        if name != program.entry and any(i.opcode == "all-reduce" for i in body)
    ]
    (transfer,) = [i for i in body if i.opcode == "all-reduce"]
    products = {i.name for i in body if i.opcode == "dot"}
    assert products
    assert products.isdisjoint(i.name for i in needs(body, transfer))


@pytest.mark.slow
def test_inside_a_checked_shard_map():
    mesh = mesh_of(WORKERS)

    def gradient(params, x):
        grads = jax.grad(loss)(relaxjax.to_local(params, "data"), x)
        return jax.tree.map(lambda g: g[None], grads)

    specs = (P(), P("data"))
    mapped = jax.shard_map(gradient, mesh=mesh, in_specs=specs, out_specs=P("data"))
    ours = mapped(jax.tree.map(jnp.asarray, layers()), jnp.asarray(data()))
    whole = jax.grad(scanned_loss)(layers(), data())
    for worker in range(WORKERS):
        assert_close(jax.tree.map(lambda g, w=worker: g[w], ours), whole, 1e-5)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"w": np.zeros((2, 3)), "b": np.zeros((3, 3))}, r"have \[2, 3\] layers"),
        ({"w": np.zeros(())}, r"have \['no axis'\] layers"),
        ({"w": np.zeros((0, 3))}, r"have \[0\] layers.*at least one"),
        ({}, r"have \[\] layers"),
    ],
)
def test_layers_that_do_not_agree(params, message):
    with pytest.raises(ValueError, match=f"scan_layers: .*{message}"):
        scan_layers(layer, params, np.zeros(3), all_reduce("data"))


def test_a_reducer_with_arrays_needs_its_state():
    with pytest.raises(ValueError, match=r"scan_layers.*keeps arrays.*pass state="):
        scan_layers(layer, layers(), data(), feedback())


def test_x_keeps_its_shape():
    with pytest.raises(TypeError, match="carry"):
        jax.vmap(
            lambda x: scan_layers(lambda p, h: h[:1], layers(), x, all_reduce("data")),
            axis_name="data",
        )(data()[None])

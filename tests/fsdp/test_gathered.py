"""Sharded params: as an all-reduce without codes, as lists of workers with them."""

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import compression, emulate, fsdp
from tests import helpers
from tests.fsdp import references
from tests.fsdp.forms import first_state, mesh_of_two, step_of, train
from tests.helpers import assert_close, assert_equal, mesh_of

DATA = helpers.batches(4, rows=24)
EIGHT = compression.quantize(8, block_size=None)
FOUR = compression.quantize(4, block_size=None)
ODD = {"m": (5, 7), "v": (3,), "s": (), "empty": (0, 3)}


def odd(dtype=np.float32):
    """Sizes that do not divide, a vector, a scalar and an empty leaf."""
    rng = np.random.default_rng(3)
    return {k: np.asarray(rng.normal(size=s), dtype) for k, s in ODD.items()}


def drawn(n: int, dtype=np.float32):
    """Gradients of n workers for `odd`."""
    rng = np.random.default_rng(n)
    return {k: rng.normal(size=(n, *s)).astype(dtype) for k, s in ODD.items()}


def linear(params, batch):
    """Its gradient is the batch."""
    pairs = jax.tree.map(
        lambda w, g: jnp.sum((w * g[0]).astype(jnp.float32)), params, batch
    )
    return sum(jax.tree.leaves(pairs))


def stepped(mesh, batch, *, steps: int = 1, dtype: Any = np.float32, **choices: Any):
    """The model after steps of plain descent at rate 1 with these gradients."""
    data, tx = [batch] * steps, optax.sgd(1.0)
    return train(tx, mesh, data, loss_fn=linear, start=odd(dtype), **choices)


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "choices",
    [{}, {"reshard_after_forward": True, "bucket_bytes": 1}],
    ids=["kept", "gathered again"],
)
@pytest.mark.parametrize("where", ["mesh", "two levels", "emulated"])
def test_without_codes_it_is_an_all_reduce(where, choices):
    meshes = {
        "mesh": mesh_of(8),
        "two levels": mesh_of_two(),
        "emulated": emulate({"host": 2, "device": 4}),
    }
    tx = optax.adamw(1e-2)
    alone, _ = helpers.train_alone(tx, DATA)
    assert_close(train(tx, meshes[where], DATA, **choices), alone, 1e-5)


def seen_by(mesh, **choices):
    """What each worker computes with, [n, ...]."""
    loss = fsdp.gathered(lambda params, batch: params, mesh.axis_names, **choices)
    shards, _, owed = first_state(optax.sgd(1.0), loss, odd(), mesh)

    def look(shards, owed, seen, batch):
        return shards, owed, loss(shards, batch, state=owed), {}

    step = relaxjax.data_parallel(look, mesh)
    blank = relaxjax.to_workers(odd(), mesh)
    return step(shards, owed, blank, np.zeros(mesh.size, np.float32))[2]


@pytest.mark.parametrize("secondary", [None, "device"])
def test_gathered_weights_are_the_same_bits_everywhere(secondary):
    """The owner too computes with what it has sent."""
    seen = seen_by(mesh_of_two(), weights=EIGHT, secondary=secondary)
    for name, x in odd().items():
        expected = references.gathered(x, 8, 8)
        for found in np.asarray(seen[name]):
            np.testing.assert_array_equal(found, np.asarray(seen[name])[0])
            np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_the_gradient_goes_straight_through_the_codes():
    batch = drawn(4)
    found = stepped(mesh_of(4), batch, weights=compression.quantize(2))
    for name, x in odd().items():
        np.testing.assert_allclose(found[name], x - batch[name].mean(0), atol=1e-5)


@pytest.mark.few(2)
@pytest.mark.parametrize("n", [3, 4])
def test_scattered_codes_like_lists_of_workers(n):
    batch = drawn(n)
    for mesh in (mesh_of(n), emulate(n)):
        found = stepped(mesh, batch, gradients=FOUR)
        for name, x in odd().items():
            mean, _ = references.scattered(batch[name], 4)
            np.testing.assert_allclose(found[name], x - mean, atol=2e-6)


@pytest.mark.long
def test_two_hops_like_lists_of_workers():
    """Decoded, added up over the host, and encoded again; the mean over all ranks."""
    batch = drawn(8)
    for mesh in (mesh_of_two(), emulate({"host": 2, "device": 4})):
        found = stepped(mesh, batch, gradients=FOUR)
        for name, x in odd().items():
            mean = references.scattered_twice(batch[name], 2, 4)
            np.testing.assert_allclose(found[name], x - mean, atol=2e-6)


@pytest.mark.long
@pytest.mark.few(2)
@pytest.mark.parametrize("mesh", [emulate(4), emulate({"host": 2, "device": 2})])
def test_what_codes_lose_comes_back(mesh):
    """After t steps, means delivered and mean residual add up to all gradients."""
    batch, steps = drawn(4), 5
    fed_back = compression.error_feedback(FOUR)
    loss = fsdp.gathered(linear, mesh.axis_names, gradients=fed_back)
    tx = optax.sgd(1.0)
    state = first_state(tx, loss, odd(), mesh)
    step = relaxjax.data_parallel(step_of(tx, loss), mesh)
    for _ in range(steps):
        *state, _ = step(*state, batch)
    found, names = fsdp.whole(state[0]), sorted(ODD)
    for name, x in odd().items():
        owed = state[2].owed[names.index(name)].residual
        delivered = x - np.asarray(found[name])
        total = steps * batch[name].mean(axis=0)
        np.testing.assert_allclose(delivered + owed.mean(axis=0), total, atol=2e-5)
        if x.size > 4:
            assert np.abs(owed).max() > 1e-3


def test_loco_keeps_its_codes_as_floats():
    loco = compression.loco(FOUR, beta=1.0, reset_every=None)
    batch = drawn(4)
    found = stepped(emulate(4), batch, steps=8, gradients=loco)
    alone = stepped(emulate(4), batch, steps=8, gradients=FOUR)
    exact = odd()["m"] - 8 * batch["m"].mean(axis=0)
    assert np.linalg.norm(found["m"] - exact) < np.linalg.norm(alone["m"] - exact) / 2


def test_errors_of_differences_do_not_pile_up():
    """V <- V + D(C(s - V)): as a list of workers; a still weight is soon exact."""
    mesh, steps = emulate(4), 4
    loss = fsdp.gathered(linear, "data", weights=FOUR, difference=True)
    tx = optax.sgd(0.1)
    state = first_state(tx, loss, odd(), mesh)
    step = relaxjax.data_parallel(step_of(tx, loss), mesh)
    s, v = odd()["m"], odd()["m"]
    batch = drawn(4)
    for _ in range(steps):
        *state, _ = step(*state, batch)
        v = v + references.gathered(s - v, 4, 4)
        s = s - np.float32(0.1) * batch["m"].mean(axis=0)
    known = np.asarray(state[2].known[sorted(ODD).index("m")])
    np.testing.assert_allclose(known, [v] * 4, atol=1e-5)
    still = jax.tree.map(np.zeros_like, batch)
    errors = []
    for _ in range(4):
        *state, _ = step(*state, still)
        known = np.asarray(state[2].known[sorted(ODD).index("m")][0])
        errors.append(np.abs(known - np.asarray(fsdp.whole(state[0])["m"])).max())
    assert errors[-1] <= 1e-2 * errors[0]


@pytest.mark.few(2)
@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_narrow_in_narrow_out(dtype):
    """Bits of 16-bit weights are not taken for another format; means round once."""
    batch = drawn(4, dtype)
    assert_equal(seen_narrow(dtype), odd(dtype))
    exact = stepped(mesh_of(4), batch, dtype=dtype)
    coded = stepped(mesh_of(4), batch, dtype=dtype, weights=EIGHT, gradients=EIGHT)
    for name, x in odd(dtype).items():
        mean = batch[name].astype(np.float32).mean(axis=0).astype(dtype)
        expected = (x.astype(np.float32) - mean.astype(np.float32)).astype(dtype)
        assert exact[name].dtype == coded[name].dtype == dtype
        np.testing.assert_array_equal(exact[name], expected)
        difference = coded[name].astype(np.float32) - expected.astype(np.float32)
        assert np.abs(difference).max(initial=0) < 0.05


def seen_narrow(dtype):
    """What plain gathers make of the params of four workers."""
    mesh = mesh_of(4)
    loss = fsdp.gathered(lambda params, batch: params, "data")
    shards, _ = fsdp.init(optax.sgd(1.0), odd(dtype), mesh)
    step = relaxjax.data_parallel(lambda s, x, b: (s, loss(s, b), {}), mesh)
    blank = relaxjax.to_workers(odd(dtype), mesh)
    _, seen, _ = step(shards, blank, np.zeros(4, np.float32))
    return jax.tree.map(lambda x: x[3], seen)


@pytest.mark.long
def test_random_codes_draw_anew_in_each_step():
    stochastic = compression.quantize(4, stochastic_rounding=True)
    batch = drawn(4)
    found = [
        stepped(emulate(4), batch, steps=k, gradients=stochastic)["m"] for k in (1, 2)
    ]
    again = stepped(emulate(4), batch, gradients=stochastic)["m"]
    np.testing.assert_array_equal(found[0], again)
    assert np.abs((odd()["m"] - found[0]) - (found[0] - found[1])).max() > 1e-3


@pytest.mark.long
def test_orders_and_buckets_change_no_bit():
    choices: Any = {"weights": EIGHT, "gradients": FOUR}
    first = stepped(mesh_of(4), drawn(4), **choices)
    order = ["m", "v", "s", "empty"]
    other = stepped(mesh_of(4), drawn(4), order=order, bucket_bytes=1, **choices)
    assert_equal(first, other)

"""SDP4Bit: other codes between hosts, errors that do not pile up, digits learned."""

import itertools

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import compression, emulate, fsdp
from relaxjax.tasks import TASKS, adamw
from tests.fsdp import references
from tests.fsdp.forms import TWO, first_state, step_of, train
from tests.fsdp.test_gathered import drawn, linear, odd, stepped

EIGHT = compression.quantize(8, block_size=None)
MESH = emulate({"host": 2, "device": 4})


@pytest.mark.long
def test_gradients_have_other_codes_between_hosts():
    """Eight bits inside and two between, as lists of workers; and the other way."""
    batch, two = drawn(8), compression.quantize(2, block_size=None)
    for codes, bits in (((EIGHT, two), (8, 2)), ((two, EIGHT), (2, 8))):
        found = stepped(MESH, batch, gradients=codes[0], across=codes[1])
        for name, x in odd().items():
            mean = references.scattered_twice(batch[name], 2, *bits)
            np.testing.assert_allclose(found[name], x - mean, atol=2e-6)


@pytest.mark.long
def test_what_all_have_follows_the_weights():
    """V against s over 12 steps of a drift, which bare codes would lose each time."""
    loss = fsdp.gathered(linear, TWO, **fsdp.sdp4bit(TWO))
    tx, start = optax.sgd(0.01), odd()
    state = first_state(tx, loss, start, MESH)
    step = relaxjax.data_parallel(step_of(tx, loss), MESH)
    before, batch = start, drawn(8)
    for _ in range(12):
        before = fsdp.whole(state[0])
        *state, _ = step(*state, batch)
    known = np.asarray(state[2].known[sorted(start).index("m")])
    assert (known == known[:1]).all()
    error = np.abs(known[0] - before["m"]).max()
    bare = np.abs(references.gathered(before["m"], 8, 4) - before["m"]).max()
    assert error < bare / 10
    exact = start["m"] - 12 * 0.01 * batch["m"].mean(axis=0)
    np.testing.assert_allclose(fsdp.whole(state[0])["m"], exact, atol=0.01)


@pytest.mark.long
def test_the_transform_shares_outliers_out():
    """R is its own inverse; of an outlier in 32, four bits lose less."""
    x = np.random.default_rng(0).normal(size=100).astype(np.float32)
    exact = compression.rotated(compression.identity())
    np.testing.assert_allclose(
        compression.roundtrip(exact, jnp.asarray(x)), x, atol=1e-5
    )
    x[::32] = 50.0
    four = compression.quantize(4)
    lost = [
        np.linalg.norm(x - compression.roundtrip(c, jnp.asarray(x)))
        for c in (compression.rotated(four), four)
    ]
    assert lost[0] < 0.6 * lost[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"compressor": compression.error_feedback(EIGHT)}, "put it around"),
        ({"compressor": EIGHT, "block_size": 24}, "power of two"),
    ],
)
def test_rotations_that_are_none(options, message):
    with pytest.raises(ValueError, match=message):
        compression.rotated(**options)


@pytest.mark.slow
def test_digits_are_learned_as_well():
    """Held-out accuracy after 300 steps, three seeds: within two points of plain."""
    found = {"plain": [], "sdp4bit": []}
    for seed, name in itertools.product(range(3), found):
        task = TASKS["digits"](seed)
        how = fsdp.sdp4bit(TWO) if name == "sdp4bit" else {}
        data = itertools.islice(task.batches(seed, 128), 300)
        tx = adamw(task.learning_rate, 300)
        model = train(tx, MESH, data, loss_fn=task.loss, start=task.params, **how)
        found[name].append(float(task.metric(model)))
    print({k: np.round(v, 4).tolist() for k, v in found.items()})
    means = {k: np.mean(v) for k, v in found.items()}
    assert means["plain"] > 0.93
    assert means["sdp4bit"] >= means["plain"] - 0.02

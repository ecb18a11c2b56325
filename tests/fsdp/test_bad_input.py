"""No flag is ignored in silence: what does not fit is refused, with the remedy."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import compression, emulate, fsdp, ps
from tests import helpers

EIGHT = compression.quantize(8)
BAD = {
    "weights": ({"weights": 8}, TypeError, "weights=8 is not a Compressor"),
    "fed back": (
        {"weights": compression.error_feedback(EIGHT)},
        ValueError,
        "difference=True to send changes",
    ),
    "estimates": (
        {"gradients": compression.ef21(EIGHT)},
        ValueError,
        "Use compression.error_feedback",
    ),
    "one level": ({"secondary": "data"}, ValueError, "the inner of two axes"),
    "across one level": (
        {"across": EIGHT, "gradients": EIGHT},
        ValueError,
        "the outer of two axes",
    ),
    "exact": ({"difference": True}, ValueError, "give weights="),
    "again": (
        {"difference": True, "weights": EIGHT, "reshard_after_forward": True},
        ValueError,
        "has nothing to gather",
    ),
    "buckets": ({"bucket_bytes": 0}, ValueError, "positive number of bytes"),
}


@pytest.mark.parametrize(("choices", "kind", "message"), BAD.values(), ids=BAD)
def test_choices(choices, kind, message):
    with pytest.raises(kind, match=message):
        fsdp.gathered(lambda w: w, "data", **choices)


def test_the_outer_axis_has_no_second_copy():
    with pytest.raises(ValueError, match="secondary='device'"):
        fsdp.gathered(lambda w: w, ("host", "device"), secondary="host")


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"across": EIGHT}, "give both"),
        (
            {"across": compression.error_feedback(EIGHT), "gradients": EIGHT},
            "feedback around gradients= brings back",
        ),
    ],
)
def test_codes_between_hosts(choices, message):
    with pytest.raises(ValueError, match=message):
        fsdp.gathered(lambda w: w, ("host", "device"), **choices)


def traced(loss, shards):
    return jax.eval_shape(jax.vmap(loss, axis_name="data"), shards)


def shards_of(n=4, **how):
    return fsdp.init(optax.sgd(0.1), {"a": jnp.ones((2, 3))}, emulate(n), **how)[0]


def test_calls():

    def total(w):
        return w["a"].sum()

    with pytest.raises(ValueError, match="params are not shards but"):
        traced(fsdp.gathered(total, "data"), {"a": jnp.ones((4, 6))})
    with pytest.raises(ValueError, match="order has unknown leaf"):
        traced(fsdp.gathered(total, "data", order=["a", "b"]), shards_of())
    with pytest.raises(ValueError, match="axis of layers"):
        traced(fsdp.gathered(total, "data"), shards_of(layers="a"))
    fed_back = compression.error_feedback(EIGHT)
    with pytest.raises(ValueError, match="pass state="):
        traced(fsdp.gathered(total, "data", gradients=fed_back), shards_of())
    shards = jax.tree.map(lambda x: x[:2], shards_of())
    with pytest.raises(ValueError, match="cut into 4 slices"):
        traced(fsdp.gathered(total, "data"), shards)
    with pytest.raises(NameError, match="no axis named 'data'"):
        fsdp.gathered(total, "data")(shards_of())


def test_init():
    mesh = emulate({"island": 2, "data": 2})
    tx, params = optax.sgd(0.1), {"a": jnp.ones((2, 3))}
    with pytest.raises(ValueError, match="must be the last of"):
        fsdp.init(tx, params, mesh, over="island")
    with pytest.raises(ValueError, match="names no leaf"):
        fsdp.init(tx, params, mesh, layers=["blocks"])
    with pytest.raises(ValueError, match="elementwise optimizer"):
        fsdp.init(optax.chain(optax.clip_by_global_norm(1.0), tx), params, emulate(4))
    with pytest.raises(ValueError, match="the tree has no Shard"):
        fsdp.whole(params)
    with pytest.raises(ValueError, match="no axis 'host'"):
        fsdp.sent_bytes(fsdp.gathered(len, "host"), params, relaxjax.emulate(2))


PAGE = Path(__file__).parents[2] / "docs" / "which_optimizers.md"
(CLIP,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)


@pytest.mark.parametrize("room", [fsdp, ps], ids=["fsdp", "ps"])
def test_slices_are_clipped_by_the_norm_of_all_as_the_page_says(room):
    """As `optax.clip_by_global_norm(0.1)` does on one device, which is refused here."""
    tx, mesh, data = optax.sgd(1.0), emulate(4), helpers.batches(3, rows=8)
    begun = room.init(tx, helpers.problem(), mesh)
    make = fsdp.gathered if room is fsdp else ps.pulled
    loss = make(helpers.loss_fn, "data")

    def step(shards, state, batch):
        names = {"grads": jax.grad(loss)(shards, batch), "optax": optax}
        exec(CLIP, names | {"jax": jax, "jnp": jnp}, names)
        updates, state = tx.update(names["grads"], state, shards)
        return optax.apply_updates(shards, updates), state, ()

    run = relaxjax.data_parallel(step, mesh)
    for batch in data:
        *begun, _ = run(*begun, batch)
    clipped = optax.chain(optax.clip_by_global_norm(0.1), tx)
    alone, _ = helpers.train_alone(clipped, data)
    helpers.assert_close(room.whole(begun[0]), alone, 1e-5)
    moved = jax.tree.map(np.subtract, alone, helpers.problem())
    assert 0.15 < optax.tree.norm(moved) <= 0.3 + 1e-6


@pytest.mark.parametrize("gradients", [None, EIGHT], ids=["as they are", "coded"])
def test_codes_have_no_second_derivative(gradients):
    """It would be near zero, as codes are integers; that of inputs is right."""
    loss = fsdp.gathered(
        lambda w, x: jnp.sum(jnp.tanh(x @ w) ** 2), "data", gradients=gradients
    )
    shards, _ = fsdp.init(optax.sgd(0.1), np.ones((3, 2), np.float32), emulate(2))
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(2, 2, 3)

    def of_params(s, x):
        return sum(jnp.sum(g**2) for g in jax.tree.leaves(jax.grad(loss)(s, x)))

    def of_inputs(s, x):
        return jnp.sum(jax.grad(loss, argnums=1)(s, x) ** 2)

    def penalty(of):
        return jax.vmap(jax.grad(of), axis_name="data")(shards, x)

    assert np.isfinite(jax.tree.leaves(penalty(of_inputs))[0]).all()
    if gradients is None:
        assert np.isfinite(jax.tree.leaves(penalty(of_params))[0]).all()
        return
    with pytest.raises(NotImplementedError, match="has no second derivative"):
        penalty(of_params)

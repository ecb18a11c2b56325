"""Gathering a layer ahead computes what a plain scan over gathered layers does."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from relaxjax import compression, emulate, fsdp
from tests.helpers import assert_close

AXES = {"host": 2, "device": 2}
FOUR = compression.quantize(4)
HOW = {
    "again": {"reshard_after_forward": True},
    "codes": {
        "weights": compression.quantize(8),
        "gradients": compression.error_feedback(FOUR),
        "secondary": "device",
    },
    "differences": {"weights": FOUR, "difference": True},
    "random": {
        "gradients": compression.quantize(4, stochastic_rounding=True),
        "reshard_after_forward": True,
    },
}


def layer(p, x):
    return jnp.tanh(x @ p["w"] + p["b"])


def gradients(how, layers, *, ahead):
    """Two steps of it: gradients, states and input's gradients, of all workers."""
    mesh, rng = emulate(AXES), np.random.default_rng(0)
    start = {
        "w": rng.normal(size=(layers, 5, 5)).astype(np.float32),
        "b": rng.normal(size=(layers, 5)).astype(np.float32),
    }
    gathered = fsdp.gathered(layer, tuple(AXES), **how)
    shards, _ = fsdp.init(optax.sgd(1.0), start, mesh, layers=["w", "b"])
    state = fsdp.init_state(gathered, shards, mesh)
    x = rng.normal(size=(4, 3, 5)).astype(np.float32)

    def loss(shards, state, x):
        kept = state if gathered.choices.stateful else None
        if ahead:
            return jnp.sum(fsdp.scan_layers(gathered, shards, x, state=kept) ** 2)

        def turn(x, sliced):
            p, kept = sliced
            kept = kept if gathered.choices.stateful else None
            return gathered(p, x, state=kept), None

        return jnp.sum(jax.lax.scan(turn, x, (shards, state))[0] ** 2)

    def unfold(tree):
        return jax.tree.map(lambda v: v.reshape(2, 2, *v.shape[1:]), tree)

    step = jax.grad(loss, argnums=(0, 1, 2))
    mapped = jax.jit(jax.vmap(jax.vmap(step, axis_name="device"), axis_name="host"))
    args = unfold((shards, state, x))
    first = mapped(*args)
    return first, mapped(args[0], first[1], args[2])


@pytest.mark.few(2)
@pytest.mark.parametrize("layers", [1, 2, 4])
@pytest.mark.parametrize("how", HOW.values(), ids=HOW)
def test_like_a_plain_scan(how, layers):
    ours = gradients(how, layers, ahead=True)
    expected = gradients(how, layers, ahead=False)
    assert_close(ours, expected, 1e-5)


def test_what_cannot_be():
    gathered = fsdp.gathered(layer, "data")
    with pytest.raises(ValueError, match="reshard_after_forward=True"):
        fsdp.scan_layers(gathered, {}, jnp.ones(3))
    gathered = fsdp.gathered(layer, "data", reshard_after_forward=True)
    shards, _ = fsdp.init(optax.sgd(1.0), {"w": jnp.ones((5, 5))}, emulate(2))
    with pytest.raises(ValueError, match="the same number of layers"):
        jax.eval_shape(
            jax.vmap(lambda s: fsdp.scan_layers(gathered, s, jnp.ones(5))), shards
        )

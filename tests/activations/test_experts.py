"""The mixture of experts of the example: apart and together are one model."""

import runpy
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from relaxjax import activations

EXAMPLES = Path(__file__).parents[2] / "examples"
EXAMPLE = runpy.run_path(str(EXAMPLES / "mixture_of_experts.py"))
N = EXAMPLE["EXPERTS"]


def batches():
    """Rows of each device."""
    return np.random.default_rng(0).integers(0, 128, (N, 2, 17)).astype(np.uint8)


def nats(codes, params):
    """Loss of each device, under vmap."""
    loss = partial(EXAMPLE["loss_fn"], codes=codes)
    return jax.vmap(lambda p, b: loss(p, b)[1], axis_name="expert")(params, batches())


def together(params):
    """The same on one device: each token is given to all experts, and one counts."""
    experts = params["own"]
    shared = jax.tree.map(lambda x: x[0], params["shared"])

    def layer(x, router, expert, codes):
        tokens = x.reshape(-1, x.shape[-1])
        room = int(EXAMPLE["ROOM"] * len(tokens) / N)
        likes = jax.nn.softmax(tokens @ router)
        best = jnp.argmax(likes, axis=-1)
        out = jnp.zeros_like(tokens)
        for e in range(N):
            mine = best == e
            seated = mine & (jnp.cumsum(mine) <= room)
            made = jax.nn.gelu(tokens @ expert["widen"][e]) @ expert["narrow"][e]
            out = out + jnp.where(seated[:, None], made * likes[:, e : e + 1], 0)
        return out.reshape(x.shape), jnp.zeros(())

    place = EXAMPLE["loss_fn"].__globals__
    before = place["experts"]
    place["experts"] = layer
    try:
        whole = {"shared": shared, "own": experts}
        return jnp.stack([EXAMPLE["loss_fn"](whole, b, {})[1] for b in batches()])
    finally:
        place["experts"] = before


@pytest.mark.long
def test_without_codes_it_is_the_model_on_one_device():
    params = jax.tree.map(jnp.asarray, EXAMPLE["parts"](0))
    losses, grads = jax.jit(
        jax.value_and_grad(lambda p: nats({}, p).mean()),
    )(params)
    expected, exact = jax.jit(jax.value_and_grad(lambda p: together(p).mean()))(params)
    assert losses == pytest.approx(float(expected), rel=1e-6)
    for found, one in zip(
        jax.tree.leaves(grads["own"]), jax.tree.leaves(exact["own"]), strict=True
    ):
        np.testing.assert_allclose(found, one, 2e-4, 1e-7)


@pytest.mark.long
def test_codes_are_near_it_and_send_what_is_stated():
    params, codes = EXAMPLE["parts"](0), EXAMPLE["CODES"]["8 bits both ways"]
    exact, coded = (jax.jit(partial(nats, c))(params) for c in ({}, codes))
    # A token whose two best experts are close may go to the other in the next layer.
    assert 0 < np.abs(coded - exact).max() <= 5e-3 * exact.max()
    tokens = 2 * 16
    room = int(EXAMPLE["ROOM"] * tokens / N)
    x = jax.ShapeDtypeStruct((N, room, EXAMPLE["WIDTH"]), jnp.float32)
    each = activations.sent_bytes("all_to_all", x, N, **codes)
    traced = activations.traced_bytes(
        lambda p, b: EXAMPLE["loss_fn"](p, b, codes)[0],
        jax.tree.map(lambda x: x[0], params),
        batches()[0],
        axes={"expert": N},
    )
    times = 2 * EXAMPLE["LAYERS"]  # there and back
    assert traced["expert"] == (times * each.forward, times * each.backward)


@pytest.mark.slow
def test_it_learns():
    bits, held_out, _ = EXAMPLE["main"]("8 bits both ways", steps=30)
    assert max(bits, held_out) < 5

"""Sharded layers in the program for eight H100s: what runs beside their transfers."""

import jax
import jax.numpy as jnp
import optax
import pytest

import relaxjax
from benchmarks.programs.ahead_of_time import compiled_text
from relaxjax import compression, fsdp
from relaxjax.schedule import Device, Link, replay

LAYERS, WIDTH, ROWS = 6, 1024, 4096
DEVICE = Device(flops=4e14, bandwidth=3.35e12)
LINK = Link(latency=1e-5, bandwidth=4.5e11)
CODES = {
    "weights": compression.quantize(8, block_size=2048),
    "gradients": compression.quantize(4),
}


def text_of(mesh, *, ahead, **choices):
    """A step of plain descent on a scan over square layers."""
    layer = fsdp.gathered(
        lambda w, x: jnp.tanh(x @ w), "data", reshard_after_forward=True, **choices
    )

    def loss(shards, x):
        if ahead:
            return jnp.mean(fsdp.scan_layers(layer, shards, x) ** 2)
        return jnp.mean(jax.lax.scan(lambda x, p: (layer(p, x), None), x, shards)[0])

    def step(shards, opt_state, batch):
        grads = jax.grad(loss)(shards, batch)
        return (
            optax.apply_updates(shards, tx.update(grads, opt_state)[0]),
            opt_state,
            {},
        )

    tx = optax.sgd(0.1)
    c = WIDTH * WIDTH // 8
    value = jax.ShapeDtypeStruct((8, LAYERS, c), jnp.float32)
    shards = fsdp.Shard(value, (WIDTH, WIDTH), 8)
    batch = jax.ShapeDtypeStruct((8 * ROWS, WIDTH), jnp.float32)
    run = relaxjax.data_parallel(step, mesh)
    return compiled_text(run, shards, tx.init(shards), batch)


@pytest.fixture(scope="module")
def runs(mesh):
    how = {"ahead": (True, CODES), "at once": (False, CODES), "plain": (True, {})}
    return {
        name: replay(text_of(mesh, ahead=ahead, **codes), device=DEVICE, link=LINK)
        for name, (ahead, codes) in how.items()
    }


def test_gathers_hide_behind_the_layer_before(runs):
    print({k: (r.exposed, r.forward_share, r.share) for k, r in runs.items()})
    assert runs["ahead"].exposed < 0.6 * runs["at once"].exposed
    assert runs["ahead"].forward_share >= 0.5
    assert runs["at once"].forward_share <= 0.05


def test_scale_and_codes_are_one_message(runs):
    """Two gathers and a scatter for each layer."""
    assert len(runs["ahead"].transfers) == 3 * LAYERS

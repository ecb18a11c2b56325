"""The transformer of the example: split and whole are one model, and codes learn."""

import runpy
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from relaxjax import activations

EXAMPLES = Path(__file__).parents[2] / "examples"
SPLIT = runpy.run_path(str(EXAMPLES / "coded_tensor_parallel.py"))
WHOLE = runpy.run_path(str(EXAMPLES / "tensor_parallel.py"))
MODEL = SPLIT["MODEL"]


def joined(parts):
    """The params of one device, from [MODEL, ..]."""

    def leaf(shape_and_dimension, x):
        dimension = shape_and_dimension[1]
        return x[0] if dimension is None else np.concatenate([*x], axis=dimension)

    return jax.tree.map(
        leaf, SPLIT["WHOLE"], parts, is_leaf=lambda node: isinstance(node, tuple)
    )


def batch():
    return np.random.default_rng(0).integers(0, 128, (2, 17)).astype(np.uint8)


def of_workers(codes, parts):
    """Loss and gradients of each device, under vmap."""
    grad = jax.value_and_grad(partial(SPLIT["loss_fn"], codes=codes))
    return jax.jit(jax.vmap(grad, (0, None), axis_name="model"))(parts, batch())


@pytest.mark.long
def test_without_codes_it_is_the_model_on_one_device():
    parts = SPLIT["parts"](0)
    losses, grads = of_workers({}, parts)
    loss, expected = jax.jit(jax.value_and_grad(WHOLE["loss_fn"]))(
        joined(parts), batch()
    )
    np.testing.assert_allclose(losses, [loss] * MODEL, 1e-6)
    for found, exact in zip(
        jax.tree.leaves(joined(grads)), jax.tree.leaves(expected), strict=True
    ):
        np.testing.assert_allclose(found, exact, 2e-4, 1e-6)


@pytest.mark.long
@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("name", "loss_off", "gradient_off"),
    [
        ("8 bits forward", 5e-4, 0.04),
        ("8 bits both ways", 5e-4, 0.08),
        ("4 bits both ways", 5e-3, 0.25),
    ],
)
def test_codes_are_near_it_and_replicas_stay_equal(name, loss_off, gradient_off):
    parts, codes = SPLIT["parts"](0), SPLIT["CODES"][name]
    losses, grads = of_workers(codes, parts)
    exact, expected = of_workers({}, parts)
    assert len(set(np.asarray(losses).tolist())) == 1
    assert 0 < abs(losses[0] - exact[0]) <= loss_off * exact[0]
    for kept in ("symbols", "positions", "output"):  # held by all devices
        assert len({row.tobytes() for row in np.asarray(grads[kept])}) == 1
    pairs = list(zip(jax.tree.leaves(grads), jax.tree.leaves(expected), strict=True))
    off = sum(float(jnp.sum((a - b) ** 2)) for a, b in pairs)
    size = sum(float(jnp.sum(b**2)) for _, b in pairs)
    assert 0 < (off / size) ** 0.5 <= gradient_off


@pytest.mark.long
def test_bytes_of_both_ways_are_those_of_eight_sums():
    codes = SPLIT["CODES"]["8 bits both ways"]
    params = jax.tree.map(lambda x: x[0], SPLIT["parts"](0))
    traced = activations.traced_bytes(
        partial(SPLIT["loss_fn"], codes=codes), params, batch(), axes={"model": MODEL}
    )
    x = jax.ShapeDtypeStruct((2, 16, SPLIT["WIDTH"]), jnp.float32)
    g = activations.sent_bytes("all_reduce", x, MODEL, **codes)
    f = activations.sent_bytes("copy", x, MODEL, **codes)
    sums = 2 * SPLIT["LAYERS"]
    assert traced["model"] == (sums * g.forward, sums * f.backward)


@pytest.mark.slow
def test_it_learns_over_two_axes():
    bits, held_out, sent = SPLIT["main"]("8 bits both ways", steps=30)
    assert max(bits, held_out) < 5  # the mean from 7 on
    assert sent.forward == sent.backward

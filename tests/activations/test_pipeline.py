"""The pipeline of the example: two stages are one model, and differences shrink."""

import runpy
from functools import partial
from itertools import pairwise
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from relaxjax import activations, compression

EXAMPLES = Path(__file__).parents[2] / "examples"
EXAMPLE = runpy.run_path(str(EXAMPLES / "coded_pipeline.py"))
M, WIDTH, CONTEXT = EXAMPLE["MICROBATCHES"], EXAMPLE["WIDTH"], EXAMPLE["CONTEXT"]


def batch():
    rng = np.random.default_rng(0)
    return rng.integers(0, 128, (M, 2, CONTEXT + 1)).astype(np.uint8)


def of_stages(codes, params):
    """Loss and gradients of each stage, under vmap."""
    known = jnp.zeros((2, M, 2, CONTEXT, WIDTH))
    grad = jax.value_and_grad(partial(EXAMPLE["loss_fn"], codes=codes), has_aux=True)
    mapped = jax.vmap(grad, (0, None, 0), axis_name="stage")
    (losses, told), grads = jax.jit(mapped)(params, batch(), known)
    return losses, told, grads


def whole(params):
    symbols = batch().astype(jnp.int32).reshape(-1, CONTEXT + 1)
    first, last = (jax.tree.map(lambda x, i=i: x[i], params) for i in range(2))
    x = first["symbols"][symbols[:, :-1]] + first["positions"]
    x = EXAMPLE["layers"](last, EXAMPLE["layers"](first, x))
    return optax.softmax_cross_entropy_with_integer_labels(
        EXAMPLE["normalized"](x) @ last["output"], symbols[:, 1:]
    ).mean()


@pytest.mark.long
def test_without_codes_it_is_the_model_on_one_device():
    params = EXAMPLE["parts"](0)
    losses, _, grads = of_stages({}, params)
    loss, expected = jax.jit(jax.value_and_grad(whole))(params)
    np.testing.assert_allclose(losses, [0, loss], 1e-6)
    for found, exact in zip(
        jax.tree.leaves(grads), jax.tree.leaves(expected), strict=True
    ):
        np.testing.assert_allclose(found, exact, 2e-4, 1e-7)


@pytest.mark.long
def test_codes_are_near_it_both_ways():
    params = EXAMPLE["parts"](0)
    exact, _, expected = of_stages({}, params)
    losses, _, grads = of_stages(EXAMPLE["CODES"]["8 bits both ways"], params)
    assert 0 < abs(losses[1] - exact[1]) <= 1e-3 * exact[1]
    off = jnp.linalg.norm(grads["symbols"][0] - expected["symbols"][0])
    assert 0 < off <= 0.1 * jnp.linalg.norm(expected["symbols"][0])


def test_differences_shrink_and_both_stages_know_the_same():
    rng = np.random.default_rng(0)
    x = np.stack([rng.normal(size=(3, 4, WIDTH))] * 2).astype(np.float32)
    codes = {"forward": compression.quantize(4), "differences": True}
    turn = jax.jit(jax.vmap(partial(EXAMPLE["crossed"], **codes), axis_name="stage"))
    known, off = jnp.zeros_like(x), []
    for _ in range(4):
        arrived, known = turn(x, known)
        np.testing.assert_allclose(known[0], known[1], 1e-5, 1e-6)
        off.append(float(jnp.linalg.norm(arrived[1] - x[0])))
    assert all(after < before / 5 for before, after in pairwise(off))


def test_bytes_of_a_boundary():
    codes = EXAMPLE["CODES"]["8 bits both ways"]
    params = jax.tree.map(lambda x: x[0], EXAMPLE["parts"](0))
    known = jnp.zeros((M, 2, CONTEXT, WIDTH))
    traced = activations.traced_bytes(
        lambda p: EXAMPLE["loss_fn"](p, batch(), known, codes)[0],
        params,
        axes={"stage": 2},
    )
    each = 2 * CONTEXT * (WIDTH + 2)
    # A turn more than microbatches, whose message nobody needs.
    assert traced["stage"] == ((M + 1) * each, (M + 1) * each)


@pytest.mark.slow
def test_it_learns():
    bits, held_out, _ = EXAMPLE["main"]("8 bits both ways", steps=30)
    assert max(bits, held_out) < 5

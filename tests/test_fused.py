"""Each relaxation, as one program and operation by operation, on emulated workers.

Leaves of two dimensions are alone in their buckets, where none is copied into another
array: what a worker sends and what it adds up are then fused into one loop.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from relaxjax._core._relaxation import Training
from relaxjax._names import RELAXATIONS, parse

N, STEPS = 4, 3
SHAPES = {"a": (24, 16), "b": (16, 24)}
ALONE = 4 * 24 * 16  # bytes of a leaf
PEERS = [
    "push_sum",
    "push_sum@ring",
    "gradient_tracking",
    "atc_tracking",
    "exact_diffusion",
    "gossip",
    "lossy_push_sum",
]
OTHERS = sorted({*RELAXATIONS, "all_reduce+quantize8+ef14@two_shot"} - {*PEERS})


def trees(seed: int) -> Any:
    """Values of each worker."""
    rng = np.random.default_rng(seed)
    return {
        name: jnp.asarray(rng.normal(size=(N, *shape)), jnp.float32)
        for name, shape in SHAPES.items()
    }


def trained(name: str, compiled: Callable[..., Any]) -> Any:
    """The models after some steps, by functions that are `compiled`, or are not."""
    row = parse(name).row
    how = {"bucket_bytes": ALONE} if "bucket_bytes" in row.options else {}
    training = Training(optax.sgd(0.05), 0.05, STEPS, N)
    tx = parse(name).build("data", training, **how)
    params = trees(0)
    state = compiled(jax.vmap(tx.init, axis_name="data"))(params)
    step = compiled(jax.vmap(tx.update, axis_name="data"))
    for at in range(STEPS):
        updates, state = step(trees(1 + at), state, params)
        params = optax.apply_updates(params, updates)
    return params


def require_equal(name: str) -> None:
    fused = trained(name, jax.jit)
    for key, expected in trained(name, lambda function: function).items():
        np.testing.assert_allclose(fused[key], expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", PEERS)
def test_what_peers_send_is_whole_before_it_is_overwritten(name):
    require_equal(name)


@pytest.mark.few(3)
@pytest.mark.parametrize("name", OTHERS)
def test_a_relaxation_is_the_same_however_it_is_compiled(name):
    require_equal(name)

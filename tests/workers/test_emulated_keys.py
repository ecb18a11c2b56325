"""Equal keys draw equal numbers on all workers, emulated ones too, or are refused.

Under `jax.vmap` equal keys of `rbg` draw unlike numbers (JAX's documentation says so).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from tests.helpers import mesh_of

KINDS = ("rbg", "unsafe_rbg")
SGD = optax.sgd(1.0)
METHODS: dict[str, Any] = {
    "power_sgd": optax.chain(relaxjax.power_sgd("data", rank=2), SGD),
    "acp_sgd": optax.chain(relaxjax.acp_sgd("data", rank=2), SGD),
    "dion": relaxjax.dion("data", 0.1),
    "arc_top_k": optax.chain(relaxjax.arc_top_k("data", density=0.2), SGD),
}


def trained(tx: Any, mesh: Any) -> np.ndarray:
    """Models of four workers after gradients that are zero first, then of rank one."""
    rng = np.random.default_rng(0)
    gradients = rng.normal(size=(5, 4, 12, 1)) * rng.normal(size=(5, 4, 1, 8))
    gradients[:2] = 0  # all directions are lost
    params: Any = {"w": jnp.zeros((12, 8))}
    params, state = relaxjax.init(tx, params, mesh)

    def train_step(params, state, rows):
        updates, state = tx.update({"w": rows[0]}, state, params)
        return optax.apply_updates(params, updates), state, {}

    step = relaxjax.data_parallel(train_step, mesh)
    for each in gradients.astype(np.float32):
        params, state, _ = step(params, state, each)
    return np.asarray(params["w"])


@pytest.mark.parametrize("name", METHODS)
def test_random_factors_do_not_depend_on_the_default_kind(name, request):
    usual = trained(METHODS[name], relaxjax.emulate(4))
    jax.config.update("jax_default_prng_impl", "rbg")
    request.addfinalizer(
        lambda: jax.config.update("jax_default_prng_impl", "threefry2x32")
    )
    np.testing.assert_array_equal(trained(METHODS[name], mesh_of(4)), usual)
    with pytest.warns(UserWarning, match="emulate: jax_default_prng_impl is 'rbg'"):
        emulated = relaxjax.emulate(4)
    np.testing.assert_array_equal(trained(METHODS[name], emulated), usual)


@pytest.mark.parametrize("kind", KINDS)
def test_a_common_key_that_emulated_workers_would_not_share(kind):
    key, mesh = jax.random.key(7, impl=kind), relaxjax.emulate(3)
    why = f"is of '{kind}' and the same on all workers"
    with pytest.raises(ValueError, match=f"to_workers: the key 'a' {why}"):
        relaxjax.to_workers({"a": key}, mesh, same=True)
    noise = optax.add_noise(0.1, 0.5, key)
    tx = optax.chain(relaxjax.all_reduce("data"), noise, SGD)
    with pytest.raises(ValueError, match=f"init: the key '1/rng_key' {why}"):
        relaxjax.init(tx, jnp.ones(3), mesh)
    relaxjax.init(tx, jnp.ones(3), mesh_of(3))
    relaxjax.init(tx, jnp.ones(3), relaxjax.emulate(1))
    relaxjax.to_workers({"a": key}, mesh)  # of each worker's own
    relaxjax.to_workers(jax.random.key(7), mesh, same=True)


def test_noise_before_a_reducer_is_each_workers_own():
    noise = optax.add_noise(0.1, 0.5, jax.random.key(0, impl="rbg"))
    tx = optax.chain(noise, relaxjax.all_reduce("data"), SGD)
    relaxjax.init(tx, jnp.ones(3), relaxjax.emulate(3))

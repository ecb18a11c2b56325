"""optax, where it has the thing: `lookahead` is DiLoCo of workers that are alike."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import relaxjax

WORKERS, STEPS, PERIOD, SHARE = 2, 8, 3, 0.5


def target(step):
    return jnp.asarray(np.random.default_rng(step).normal(size=5), jnp.float32)


def lookahead():
    """Fast params after each step."""
    tx = optax.lookahead(optax.adam(0.1), PERIOD, SHARE)
    params: Any = optax.LookaheadParams.init_synced(jnp.zeros(5))
    state, seen = tx.init(params), []
    for step in range(STEPS):
        updates, state = tx.update(params.fast - target(step), state, params)
        params = optax.apply_updates(params, updates)
        seen.append(params.fast)
    return jnp.stack(seen)


def diloco():
    tx = relaxjax.diloco(optax.adam(0.1), "data", PERIOD, outer=optax.sgd(SHARE))
    init = jax.vmap(tx.init, axis_name="data")
    params, seen = jnp.zeros((WORKERS, 5)), []
    state = init(params)

    @jax.jit
    def train_step(params, state, target):
        def one(params, state):
            updates, state = tx.update(params - target, state, params)
            return optax.apply_updates(params, updates), state

        return jax.vmap(one, axis_name="data")(params, state)

    for step in range(STEPS):
        params, state = train_step(params, state, target(step))
        seen.append(params[0])
    return jnp.stack(seen)


def test_lookahead_is_diloco_of_equal_workers():
    np.testing.assert_allclose(diloco(), lookahead(), rtol=1e-6, atol=1e-6)

"""Training with sharded params, on devices or emulated, and one model from it."""

from typing import Any

import jax
import numpy as np
import optax

import relaxjax
from relaxjax import fsdp
from tests import helpers

TWO = ("host", "device")


def mesh_of_two(hosts: int = 2, devices: int = 4) -> jax.sharding.Mesh:
    some = np.asarray(jax.devices()[: hosts * devices])
    return jax.sharding.Mesh(some.reshape(hosts, devices), TWO)


def step_of(tx: Any, loss: fsdp.Gathered) -> Any:
    """A train step that keeps the loss's state, which may be empty."""

    def step(shards, opt_state, owed, batch):
        def value_of(shards, owed):
            return loss(shards, batch, state=owed)

        both = jax.value_and_grad(value_of, argnums=(0, 1))
        value, (grads, owed) = both(shards, owed)
        updates, opt_state = tx.update(grads, opt_state, shards)
        shards = optax.apply_updates(shards, updates)
        return shards, opt_state, owed, {"loss": value}

    return step


def first_state(tx, loss, start, mesh, **how) -> tuple[Any, Any, Any]:
    shards, opt_state = fsdp.init(tx, start, mesh, **how)
    return shards, opt_state, fsdp.init_state(loss, shards, mesh)


def train(tx, mesh, data, *, loss_fn=helpers.loss_fn, start=None, **choices) -> Any:
    """The whole model after some steps."""
    start = helpers.problem() if start is None else start
    loss = fsdp.gathered(loss_fn, mesh.axis_names, **choices)
    state = first_state(tx, loss, start, mesh)
    step = relaxjax.data_parallel(step_of(tx, loss), mesh)
    for batch in data:
        *state, _ = step(*state, batch)
    return fsdp.whole(state[0])

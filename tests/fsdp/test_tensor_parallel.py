"""Sharded params beside tensor parallelism: each part of a leaf is cut by itself."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from relaxjax import compression, emulate, fsdp
from tests import helpers
from tests.compiled_text import collectives
from tests.helpers import assert_close
from tests.sharded import SPECS, loss_fn, problem

MODEL, DATA = 2, 4
WORKER = P("model", "data")
CHOICES: dict[str, tuple[dict[str, Any], float]] = {
    "plain": ({}, 1e-5),
    "codes": (
        {"weights": compression.quantize(8), "gradients": compression.quantize(8)},
        0.02,
    ),
}


@jax.custom_vjp
def added(x):
    """The sum over parts, whose gradient each part has whole (Megatron's g)."""
    return lax.psum(x, "model")


added.defvjp(lambda x: (added(x), None), lambda _, gradient: (gradient,))


def loss_of_parts(params, batch):
    """`loss_fn`, of the columns and rows that a device has of the weights."""
    hidden = jnp.tanh(batch["x"] @ params["layer1"]["w"] + params["layer1"]["b"])
    out = added(hidden @ params["layer2"]["w"]) + params["layer2"]["b"]
    return jnp.mean((out - batch["y"]) ** 2)


def parts(params: Any) -> list[Any]:
    """The params of each device on "model"."""

    def part(x, spec, i):
        return np.split(x, MODEL, spec.index("model"))[i] if "model" in spec else x

    return [
        jax.tree.map(lambda x, spec, i=i: part(x, spec, i), params, SPECS)
        for i in range(MODEL)
    ]


def step_of(tx: Any, loss: fsdp.Gathered, mesh: Mesh) -> Any:
    """A step of state [model, data, ...] and a batch that "data" shards."""

    def step(state, batch):
        shards, opt_state = jax.tree.map(lambda x: x[0, 0], state)
        grads = jax.grad(loss)(shards, batch)
        updates, opt_state = tx.update(grads, opt_state, shards)
        state = optax.apply_updates(shards, updates), opt_state
        return jax.tree.map(lambda x: x[None, None], state)

    specs = {"in_specs": (WORKER, P("data")), "out_specs": WORKER}
    return jax.jit(jax.shard_map(step, mesh=mesh, check_vma=False, **specs))


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("name", CHOICES)
def test_parts_in_slices_train_as_the_unsharded_program(name):
    choices, tolerance = CHOICES[name]
    devices = np.asarray(jax.devices()[: MODEL * DATA]).reshape(MODEL, DATA)
    mesh = Mesh(devices, ("model", "data"))
    tx, data = optax.sgd(0.1, momentum=0.9), helpers.batches(4, rows=8)
    loss = fsdp.gathered(loss_of_parts, "data", **choices)
    firsts = [fsdp.init(tx, part, emulate(DATA)) for part in parts(problem())]
    state: Any = jax.tree.map(lambda *leaves: np.stack(leaves), *firsts)
    step = step_of(tx, loss, mesh)
    text = helpers.optimized_hlo(step.lower(state, data[0]))

    alone = jax.tree.map(jnp.asarray, problem())
    alone_state = tx.init(alone)
    for batch in data:
        state = step(state, batch)
        updates, alone_state = tx.update(jax.grad(loss_fn)(alone, batch), alone_state)
        alone = optax.apply_updates(alone, updates)

    expected = parts(jax.tree.map(np.asarray, alone))
    for i, part in enumerate(expected):
        shards = jax.tree.map(lambda x, i=i: jnp.asarray(np.asarray(x)[i]), state[0])
        assert_close(fsdp.whole(shards), part, tolerance)

    across = {  # what leaves a part: the sum in the loss, and no weight or gradient
        kind
        for kind, groups in collectives(text)
        if any(len({device // DATA for device in group}) > 1 for group in groups)
    }
    assert across == {"all-reduce"}

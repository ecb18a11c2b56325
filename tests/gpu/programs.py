"""Small programs for a mesh of GPUs, and what is in their text."""

import re
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import PartitionSpec as P

import relaxjax
from benchmarks.programs.ahead_of_time import compiled_text, shapes, state_shapes
from relaxjax.programs import is_collective, parse

LAYERS = 6
LOOPS: dict[str, str | bool] = {
    "xla_gpu_enable_latency_hiding_scheduler": True,
    "xla_gpu_enable_analytical_sol_latency_estimator": False,
}
"""For JAX 0.12, whose estimator ends a loop's transfer where it began (4 units)."""


def update_text(tx: Any, tree: Any, mesh: jax.sharding.Mesh) -> str:
    """`tx.update` alone, from its first state."""

    def update(grads):
        grads = jax.tree.map(lambda g: g[0], grads)
        out, _ = tx.update(grads, tx.init(grads), grads)
        return jax.tree.map(lambda x: x[None], out)

    spec = P(mesh.axis_names)
    mapped = jax.shard_map(
        update, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False
    )
    where = jax.sharding.NamedSharding(mesh, spec)
    placed = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where),
        shapes(tree, mesh.size),
    )
    return compiled_text(jax.jit(mapped), placed)


def collectives(text: str) -> list[tuple[str, str]]:
    """Kind, and shape of the operands, of each collective in the order of the text."""
    module = parse(text)
    found = []
    for body in module.computations.values():
        named = {i.name: i for i in body}
        for i in filter(is_collective, body):
            operands = ", ".join(
                re.sub(r"\{.*?\}", "", named[o].shape) for o in i.operands
            )
            found.append((i.opcode.removesuffix("-start"), operands))
    return found


def perceptron(width: int = 1024) -> Any:
    """Params of a six-layer perceptron without biases, as shapes."""
    matrix = jax.ShapeDtypeStruct((width, width), jnp.float32)
    return {f"layer{i}": matrix for i in range(LAYERS)}


def loss_fn(params: Any, x: jax.Array) -> jax.Array:
    for i in range(LAYERS):
        x = jnp.tanh(x @ params[f"layer{i}"])
    return jnp.mean(x**2)


def train_text(
    reducer: Any,
    mesh: jax.sharding.Mesh,
    *,
    rows: int = 2048,
    width: int = 1024,
    options: Mapping[str, str | bool] | None = None,
) -> str:
    """A train step of the perceptron, `rows` for each device."""
    params = perceptron(width)
    tx = optax.chain(reducer, optax.sgd(0.1))

    def step(params, opt_state, batch):
        loss, grads = jax.value_and_grad(loss_fn)(params, batch)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, {"loss": loss}

    state = state_shapes(tx, params, mesh.size)
    batch = jax.ShapeDtypeStruct((mesh.size * rows, width), jnp.float32)
    mapped = relaxjax.data_parallel(step, mesh)
    return compiled_text(mapped, *state, batch, options=options)

"""A model whose weights are sharded over a second axis, "model"."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

SPECS = {
    "layer1": {"w": P(None, "model"), "b": P("model")},
    "layer2": {"w": P("model"), "b": P()},
}


def mesh_of(data: int, model: int) -> Mesh:
    devices = np.asarray(jax.devices()[: data * model])
    return Mesh(devices.reshape(data, model), ("data", "model"))


def problem():
    rng = np.random.default_rng(0)
    return {
        "layer1": {
            "w": rng.normal(size=(5, 8)).astype(np.float32) / 3,
            "b": rng.normal(size=8).astype(np.float32) / 3,
        },
        "layer2": {
            "w": rng.normal(size=(8, 3)).astype(np.float32) / 3,
            "b": rng.normal(size=3).astype(np.float32) / 3,
        },
    }


def loss_fn(params, batch):
    hidden = jnp.tanh(batch["x"] @ params["layer1"]["w"] + params["layer1"]["b"])
    out = hidden @ params["layer2"]["w"] + params["layer2"]["b"]
    return jnp.mean((out - batch["y"]) ** 2)


def sharded(params, mesh):
    return jax.tree.map(
        lambda x, spec: jax.device_put(x, NamedSharding(mesh, spec)), params, SPECS
    )

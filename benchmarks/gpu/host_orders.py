"""Copies from host memory over the real bus, in the best order and in random ones.

TicTac's own experiment (Hashemi et al. 2019, section 6), with host memory for the
server: `relaxjax.ps.from_host` copies a model's params in an order, and its layers
compute while later ones are under way. A random order is one that a runtime without
TicTac might take.
"""

import random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.gpu.record import Record, Row
from benchmarks.measure import interleaved, milliseconds, ratio
from relaxjax._core._tree import leaf_names
from relaxjax.ps import from_host, to_host


def host_orders(record: Record) -> None:
    """One row: layers as used, the other way round, and random orders."""
    layers, width, rows = (3, 32, 8) if record.tiny else (24, 2048, 8192)
    drawn, rounds = (1, 5) if record.tiny else (8, 10)
    record.measure("orders", lambda: orders(layers, width, rows, drawn, rounds))


def model(layers: int, width: int) -> tuple[Any, Any]:
    """A perceptron's loss, and its params."""
    rng = np.random.default_rng(0)
    params = {
        f"layer{i:02}": rng.normal(size=(width, width)).astype(np.float32) / width**0.5
        for i in range(layers)
    }

    def loss(params: Any, x: jax.Array) -> jax.Array:
        for name in sorted(params):
            x = jnp.tanh(x @ params[name])
        return jnp.mean(x**2)

    return loss, params


def orders(layers: int, width: int, rows: int, drawn: int, rounds: int) -> Row:
    """Milliseconds of a forward and backward pass by order, and ratios to the best."""
    loss, params = model(layers, width)
    x = jnp.ones((rows, width))
    names = leaf_names(params)  # in the order of use, which is the best one here
    rng = random.Random(0)
    tried = {"as used": names, "reversed": names[::-1]}
    tried |= {f"random {i}": rng.sample(names, len(names)) for i in range(drawn)}
    here = jax.device_put(params)
    resident = jax.jit(jax.value_and_grad(loss))
    params = to_host(here)

    def copied(order: list[str]) -> Any:
        step = jax.jit(jax.value_and_grad(from_host(loss, order=order, bucket_bytes=1)))
        return lambda: step(params, x)

    runs = {name: copied(order) for name, order in tried.items()}
    seconds = interleaved({"resident": lambda: resident(here, x), **runs}, rounds)
    found: Row = {f"{name} ms": milliseconds(times) for name, times in seconds.items()}
    for name in [*tried][1:]:
        found[f"{name} / as used"] = ratio(seconds[name], seconds["as used"]).median
    return {"bytes": sum(x.nbytes for x in jax.tree.leaves(here)), **found}

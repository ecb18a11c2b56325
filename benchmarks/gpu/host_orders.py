"""Copies from host memory over the real bus, in the best order and in random ones.

TicTac's own experiment (Hashemi et al. 2019, section 6), with host memory for the
server: `relaxjax.ps.from_host` copies a model's params in an order, and its layers
compute while later ones are under way. A random order is one that a runtime without
TicTac might take.

XLA takes such a copy for one that needs no time, and puts no computation beside it.
With a profile, which JAX takes in the first steps and compiles anew, it knows better.
"""

import random
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.gpu.record import Record, Row
from benchmarks.measure import interleaved, milliseconds, ratio
from relaxjax._core._tree import leaf_names
from relaxjax.ps import from_host, to_host

_PROFILED = 3  # steps, JAX's own default


def host_orders(record: Record) -> None:
    """Layers as used, the other way round, and in random orders; and with a profile."""
    layers, width, rows = (3, 32, 8) if record.tiny else (24, 2048, 8192)
    drawn, rounds = (1, 5) if record.tiny else (8, 10)
    sizes = layers, width, rows, drawn, rounds
    record.measure("orders", lambda: orders(*sizes))
    record.measure("orders, with a profile", lambda: profiled(*sizes))


def profiled(*sizes: int) -> Row:
    """The row of XLA's profile-guided latency estimator (`JAX_ENABLE_PGLE`)."""
    jax.config.update("jax_enable_pgle", True)
    try:
        jax.config.update("jax_pgle_profiling_runs", _PROFILED)
        with warnings.catch_warnings(record=True) as heard:  # of an empty profile, say
            warnings.simplefilter("always")
            row = orders(*sizes, warm=_PROFILED + 1)
        return {**row, "warnings": sorted({str(one.message) for one in heard})}
    finally:
        jax.config.update("jax_enable_pgle", False)


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


def orders(
    layers: int, width: int, rows: int, drawn: int, rounds: int, *, warm: int = 0
) -> Row:
    """Milliseconds of a forward and backward pass by order, and ratios to the best.

    Before they count, each takes `warm` steps.
    """
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
    for run in runs.values():
        for _ in range(warm):
            jax.block_until_ready(run())
    seconds = interleaved({"resident": lambda: resident(here, x), **runs}, rounds)
    found: Row = {f"{name} ms": milliseconds(times) for name, times in seconds.items()}
    for name in [*tried][1:]:
        found[f"{name} / as used"] = ratio(seconds[name], seconds["as used"]).median
    return {"bytes": sum(x.nbytes for x in jax.tree.leaves(here)), **found}

"""Processor seconds until a first step is done: `init`, tracing, compiling, running.

Imports are not in it.

Each program runs in a process of its own, without a cache of compiled programs, and so
does its baseline, in turns: optax alone, with a `pmean` of gradients and loss in one
jitted step, params replicated. The model is a perceptron of layers of 64 x 64 weights
and 64 biases; four workers, Adam.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from statistics import median
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import optax
import typer
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import relaxjax
from benchmarks.measure import ratio
from benchmarks.report import Result, Run, Runs, Table, benchmark
from relaxjax.compression import error_feedback, quantize

WORKERS, WIDTH, ROWS = 4, 64, 32
PLACES = ("mesh", "emulated")
BASELINE = "by hand"
TARGETS = {"all_reduce": 1.3, "gossip": 1.6, "diloco": 1.6, "8 bits": 2.5}
TARGETS |= {"power_sgd": 2.5, "power_sgd in 8 bits": 2.5}


def transformations() -> dict[str, optax.GradientTransformation]:
    """By the names of the rows."""
    adam, codes = optax.adam(1e-3), error_feedback(quantize(8))
    ring = relaxjax.topology.ring(WORKERS)
    before = {
        "all_reduce": relaxjax.all_reduce("data"),
        "8 bits": relaxjax.all_reduce("data", compressor=codes),
        "power_sgd": relaxjax.power_sgd("data", rank=4),
        "power_sgd in 8 bits": relaxjax.power_sgd("data", rank=4, bits=8),
    }
    return {
        **{name: optax.chain(reducer, adam) for name, reducer in before.items()},
        "diloco": relaxjax.diloco(adam, "data", 10),
        "gossip": optax.chain(adam, relaxjax.gossip("data", ring)),
    }


@benchmark("first-step")
def first_step(
    run: Run,
    runs: Runs = 3,
    layers: Annotated[int, typer.Option(help="of two leaves each")] = 50,
) -> Result:
    """Processor seconds of `init` and the first step, over a hand-written step."""
    names = [BASELINE, *TARGETS]
    seconds: dict[str, dict[str, list[float]]] = {
        place: {name: [] for name in names} for place in PLACES
    }
    for _ in range(runs):
        for place, rows in seconds.items():
            for name, series in rows.items():
                series.append(_process(name, place, layers))
    cells = [
        (
            name,
            place,
            median(series),
            str(ratio(series, rows[BASELINE])),
            TARGETS.get(name, ""),
        )
        for place, rows in seconds.items()
        for name, series in rows.items()
    ]
    columns = ("program", "workers", "median s", "over by hand", "target")
    return run.finish(
        {"conditions": run.conditions(), "layers": layers, "seconds": seconds},
        tables=[Table(f"First step of {2 * layers} leaves", columns, cells)],
    )


def _process(name: str, place: str, layers: int) -> float:
    env = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(WORKERS)}
    call = f"child({name!r}, {place!r}, {layers})"
    code = f"from benchmarks.micro.first_step import child; {call}"
    kept = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
    run = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, env=kept | env
    )
    return float(json.loads(run.stdout))


def child(name: str, place: str, layers: int) -> None:
    """Prints the processor seconds of one program, in its own process."""
    layer = {"w": jnp.full((WIDTH, WIDTH), 0.01), "b": jnp.zeros(WIDTH)}
    params = {f"layer{i}": dict(layer) for i in range(layers)}
    batch = jnp.ones((ROWS, WIDTH)), jnp.ones((ROWS, WIDTH))
    jax.block_until_ready(params)
    first = _by_hand if name == BASELINE else _relaxed(name)  # imports its rooms
    start = _processor_seconds()
    jax.block_until_ready(first(place, params, batch))
    print(_processor_seconds() - start)


def _processor_seconds() -> float:
    times = os.times()
    return times.user + times.system


def _loss(params: Any, batch: Any) -> jax.Array:
    x, y = batch
    for layer in params.values():
        x = jnp.tanh(x @ layer["w"] + layer["b"])
    return jnp.mean((x - y) ** 2)


def _relaxed(name: str) -> Callable[..., Any]:
    tx: Any = transformations()[name]

    def step(params: Any, state: Any, batch: Any) -> Any:
        loss, grads = jax.value_and_grad(_loss)(params, batch)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, {"loss": loss}

    def first(place: str, params: Any, batch: Any) -> Any:
        mesh = _mesh() if place == "mesh" else relaxjax.emulate(WORKERS)
        params, state = relaxjax.init(tx, params, mesh)
        return relaxjax.data_parallel(step, mesh)(params, state, batch)

    return first


def _by_hand(place: str, params: Any, batch: Any) -> Any:
    tx = optax.adam(1e-3)

    def step(params: Any, state: Any, batch: Any) -> Any:
        loss, grads = jax.value_and_grad(_loss)(params, batch)
        loss, grads = jax.lax.pmean((loss, grads), "data")
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    state = tx.init(params)
    if place == "mesh":
        mesh, rows = _mesh(), P("data")
        batch = jax.device_put(batch, NamedSharding(mesh, rows))
        ins, outs = (P(), P(), rows), (P(), P(), P())
        mapped = jax.shard_map(
            step, mesh=mesh, in_specs=ins, out_specs=outs, check_vma=False
        )
        return jax.jit(mapped)(params, state, batch)
    batch = jax.tree.map(lambda x: x.reshape(WORKERS, -1, WIDTH), batch)
    same = {"in_axes": (None, None, 0), "out_axes": None}
    return jax.jit(jax.vmap(step, axis_name="data", **same))(params, state, batch)


def _mesh() -> Any:
    return jax.make_mesh((WORKERS,), ("data",))

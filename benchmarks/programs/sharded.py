"""Layers that lie sharded over eight H100s: what their transfers hold up.

    stock     jax.jit with NamedSharding, each turn's weights gathered by the compiler
    flags     the same, with XLA's own flags for it: latency-hiding scheduler, pipelined
              gathers and scatters, loops with double buffers
    turn      fsdp.gathered in the scan: each turn gathers for itself
    ahead     fsdp.scan_layers: each turn gathers for the next one
    loops     the same, with XLA's flags for loops

Square layers, 4096 rows a device, plain descent. Nothing is run: each program is
compiled for GPUs that are not there, and its schedule replayed with stated rates.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import optax
import typer
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from benchmarks.programs.ahead_of_time import (
    Microseconds,
    Tflops,
    compiled_text,
    rates,
)
from benchmarks.programs.by_bandwidth import columns_of, row_of
from benchmarks.programs.gpu_program import gpu_mesh
from benchmarks.report import Result, Run, Table, benchmark
from relaxjax import compression, data_parallel, fsdp
from relaxjax.schedule import Device, Link

DEVICES, WIDTH, ROWS = 8, 1024, 4096
BANDWIDTHS = (25e9, 100e9, 450e9)  # bytes per second; the last is NVLink's
CODES: Mapping[str, Any] = {
    "weights": compression.quantize(8, block_size=2048),
    "gradients": compression.quantize(4),
}
FLAGS = {
    "xla_gpu_enable_latency_hiding_scheduler": True,
    "xla_gpu_enable_while_loop_double_buffering": True,
}
LOOPS = {"xla_gpu_enable_latency_hiding_scheduler": True}
if jax.__version_info__ < (0, 11):  # newer ones have no such flags
    FLAGS["xla_gpu_enable_pipelined_all_gather"] = True
    FLAGS["xla_gpu_enable_pipelined_reduce_scatter"] = True
else:  # their estimator ends a loop's transfer where it began
    LOOPS["xla_gpu_enable_analytical_sol_latency_estimator"] = False
PROGRAMS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "stock": ("stock", {}),
    "stock, XLA's flags": ("flags", {}),
    "fsdp, a turn for itself": ("turn", {}),
    "fsdp, a layer ahead": ("ahead", {}),
    "fsdp, a layer ahead, XLA's flags": ("loops", {}),
    "fsdp 8 and 4 bits, a turn for itself": ("turn", CODES),
    "fsdp 8 and 4 bits, a layer ahead": ("ahead", CODES),
    "fsdp 8 and 4 bits, a layer ahead, XLA's flags": ("loops", CODES),
}


def stock_text(
    mesh: Mesh, layers: int, options: Mapping[str, bool] | None = None
) -> str:
    """`jax.jit` of the whole batch; the compiler gathers and scatters by itself."""
    sliced, rows = P(None, "data"), P("data")

    def loss(params, x):
        def turn(x, w):
            w = lax.with_sharding_constraint(w, NamedSharding(mesh, P()))
            y = jnp.tanh(x @ w)
            return lax.with_sharding_constraint(y, NamedSharding(mesh, rows)), None

        return jnp.mean(lax.scan(jax.checkpoint(turn), x, params)[0] ** 2)

    def step(params, x):
        return params - 0.1 * jax.grad(loss)(params, x)

    def placed(*shape: int, spec: P) -> jax.ShapeDtypeStruct:
        sharding = NamedSharding(mesh, spec)
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)

    jitted = jax.jit(step, out_shardings=NamedSharding(mesh, sliced))
    params = placed(layers, WIDTH, WIDTH, spec=sliced)
    batch = placed(DEVICES * ROWS, WIDTH, spec=rows)
    return compiled_text(jitted, params, batch, options=options)


def fsdp_text(
    mesh: Mesh, layers: int, *, ahead: bool, options: Any = None, **choices: Any
) -> str:
    """The same descent on `fsdp` shards, in turns of their own or a layer ahead."""
    layer = fsdp.gathered(
        lambda w, x: jnp.tanh(x @ w), "data", reshard_after_forward=True, **choices
    )

    def loss(shards, x):
        if ahead:
            return jnp.mean(fsdp.scan_layers(layer, shards, x) ** 2)
        return jnp.mean(lax.scan(lambda x, p: (layer(p, x), None), x, shards)[0] ** 2)

    def step(shards, opt_state, batch):
        updates, opt_state = tx.update(jax.grad(loss)(shards, batch), opt_state)
        return optax.apply_updates(shards, updates), opt_state, {}

    tx = optax.sgd(0.1)
    slices = jax.ShapeDtypeStruct(
        (DEVICES, layers, WIDTH * WIDTH // DEVICES), jnp.float32
    )
    shards: Any = fsdp.Shard(slices, (WIDTH, WIDTH), DEVICES)
    batch = jax.ShapeDtypeStruct((DEVICES * ROWS, WIDTH), jnp.float32)
    state = tx.init(shards)
    return compiled_text(
        data_parallel(step, mesh), shards, state, batch, options=options
    )


def text_of(name: str, mesh: Mesh, layers: int, options: Any = None) -> str:
    """The program of a row of `PROGRAMS`; the options are for ours."""
    way, codes = PROGRAMS[name]
    if way in ("stock", "flags"):
        return stock_text(mesh, layers, FLAGS if way == "flags" else None)
    if way == "loops":
        options = LOOPS
    return fsdp_text(mesh, layers, ahead=way != "turn", options=options, **codes)


# Without a driver, JAX's CUDA plugin can only compile.
@benchmark("sharded", platform="cpu")
def sharded(
    run: Run,
    tflops: Tflops = 400,
    microseconds: Microseconds = 10,
    layers: Annotated[int, typer.Option(min=2, help="Layers of the model.")] = 6,
) -> Result:
    """What transfers of sharded layers hold up, in programs for eight H100s."""
    mesh = gpu_mesh((DEVICES,))
    device, link, known = rates(tflops, BANDWIDTHS[-1] / 1e9, microseconds)
    rows = [_row(name, text_of(name, mesh, layers), device, link) for name in PROGRAMS]
    columns = columns_of(BANDWIDTHS)
    sizes = {"devices": DEVICES, "width": WIDTH, "rows": ROWS}
    return run.finish(
        {
            "conditions": run.conditions(**known, **sizes),
            "bandwidths": BANDWIDTHS,
            "rows": rows,
        },
        tables=[
            Table.of("Sharded layers", rows, "program", "transfers", "MiB", *columns)
        ],
    )


def _row(name: str, text: str, device: Device, link: Link) -> dict[str, Any]:
    """A row of JSON: seconds and exposed seconds by bandwidth."""
    row, nbytes = row_of(text, device, link, BANDWIDTHS)
    return {"program": name, "MiB": nbytes / 2**20, **row}

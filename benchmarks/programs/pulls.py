"""How much of pulls and pushes hides in programs for eight H100s, by their order.

Nothing is run: a step of `relaxjax.ps.pulled` is compiled for GPUs that are not there,
once for each order of its pulls (pushes leave in the reverse), and its schedule is
replayed with stated rates (`relaxjax.schedule.replay`). Orders come from the graph of
the same loss, with the same rates.
"""

import time
from collections.abc import Sequence
from typing import Any

import jax
import optax
from jax.sharding import Mesh

from benchmarks.programs.ahead_of_time import (
    Gigabytes,
    Microseconds,
    Tflops,
    compiled_text,
    rates,
    state_shapes,
)
from benchmarks.programs.compiled_orders import MIB, compared, orders_of, report
from benchmarks.programs.gpu_program import gpu_mesh
from benchmarks.programs.overlap_models import Workload, transformer
from benchmarks.report import RandomOrders, Result, Run, benchmark
from relaxjax import data_parallel
from relaxjax.ps import Shard, pulled
from relaxjax.schedule import analytic

DEVICES = 8
SIZES = (2 * MIB, 8 * MIB)  # bytes of whole leaves that travel together


# Without a driver, JAX's CUDA plugin can only compile.
@benchmark("pulls", platform="cpu")
def pulls(
    run: Run,
    random_orders: RandomOrders = 20,
    tflops: Tflops = 400,
    gigabytes: Gigabytes = 450,
    microseconds: Microseconds = 10,
) -> Result:
    """Orders of pulls in programs for eight H100s, compiled without one."""
    start, mesh, training = time.perf_counter(), gpu_mesh((DEVICES,)), transformer()
    device, link, known = rates(tflops, gigabytes, microseconds)

    def text_of(order: Sequence[str], size: int) -> str:
        return pulled_text(training, mesh, order=order, bucket_bytes=size)

    orders = orders_of(training, analytic(device), link, random_orders)
    rows = compared(text_of, orders, SIZES, device, link)
    seconds = round(time.perf_counter() - start)
    conditions = run.conditions(**known, devices=DEVICES, seconds=seconds)
    return report(run, conditions, rows, "Pulls in order")


def pulled_text(training: Workload, mesh: Mesh, **knobs: Any) -> str:
    """The program of a step of plain descent whose params are pulled."""
    tx, loss = optax.sgd(0.1), pulled(training.loss, "data", **knobs)

    def step(shards: Any, opt_state: Any, batch: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(shards, batch)
        updates, opt_state = tx.update(grads, opt_state, shards)
        return optax.apply_updates(shards, updates), opt_state, {"loss": value}

    n = mesh.size

    def shard(x: Any) -> Shard:
        return Shard(jax.ShapeDtypeStruct((-(-x.size // n),), x.dtype), x.shape, n)

    state = state_shapes(tx, jax.tree.map(shard, training.params), n)
    rows, *rest = training.batch.shape
    batch = jax.ShapeDtypeStruct((n * rows, *rest), training.batch.dtype)
    return compiled_text(data_parallel(step, mesh), *state, batch)

"""How much of pulls and pushes hides in programs for eight H100s, by their order.

Nothing is run: a step of `relaxjax.ps.pulled` is compiled for GPUs that are not there,
once for each order of its pulls (pushes leave in the reverse), and its schedule is
replayed with stated rates (`relaxjax.schedule.replay`). Orders come from the graph of
the same loss, with the same rates.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import optax
from jax.sharding import Mesh

from benchmarks.programs.ahead_of_time import compiled_text, state_shapes
from benchmarks.programs.compiled_orders import MIB, compared, orders_of, report
from benchmarks.programs.gpu_program import gpu_mesh
from benchmarks.programs.overlap_models import Training, transformer
from benchmarks.report import conditions
from relaxjax.ps import Shard, pulled
from relaxjax.schedule import Device, Link, analytic
from relaxjax.workers._data_parallel import data_parallel

DEVICES = 8
SIZES = (2 * MIB, 8 * MIB)
TARGET = 0.6  # of forward products under a pull, in the best order


def pulls(
    *,
    random_orders: int = 20,
    sizes: Sequence[int] = SIZES,
    tflops: float = 400.0,
    memory: float = 3.35e12,
    bandwidth: float = 450e9,
    latency: float = 1e-5,
    make: Callable[[], Training] = transformer,
    out: str = "runs/bench",
) -> dict[str, Any]:
    """Compiles, replays and compares.

    Args:
      random_orders: how many.
      sizes: of transfers, bytes of whole leaves.
      tflops: 10^12 products and sums that a device computes in a second.
      memory: bytes that it moves in a second.
      bandwidth: bytes that a device sends in a second.
      latency: seconds that a transfer costs by itself.
      make: what is trained.
      out: folder for the JSON.

    Returns:
      What was seen, as saved.

    Raises:
      Unavailable: this machine cannot compile for GPUs.
    """
    start, mesh, training = time.perf_counter(), gpu_mesh((DEVICES,)), make()
    device, link = Device(tflops * 1e12, memory), Link(latency, bandwidth)

    def text_of(order: Sequence[str], size: int) -> str:
        return pulled_text(training, mesh, order=order, bucket_bytes=size)

    orders = orders_of(training, analytic(device), link, random_orders)
    rows = compared(text_of, orders, sizes, device, link)
    result = {
        "conditions": conditions(
            card="H100, compiled for, not run",
            devices=DEVICES,
            tflops=tflops,
            memory=memory,
            bandwidth=bandwidth,
            latency=latency,
            seconds=round(time.perf_counter() - start),
        ),
        "target": TARGET,
        "rows": rows,
    }
    report(result, "Pulls in order", out, "pulls")
    return result


def pulled_text(training: Training, mesh: Mesh, **how: Any) -> str:
    """The program of a step of plain descent whose params are pulled."""
    tx, loss = optax.sgd(0.1), pulled(training.loss, "data", **how)

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

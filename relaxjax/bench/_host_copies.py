"""How much of copies from and to host memory hides in a program for one H100.

As `relaxjax.bench._pulls`, for the gradient of `relaxjax.ps.from_host`: params are
copied to the device in an order, gradients back in its reverse. In the replay both
share one link, where a bus has two directions: the worse case.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from relaxjax.bench._ahead_of_time import Unavailable
from relaxjax.bench._compiled_orders import MIB, compared, orders_of, report
from relaxjax.bench._gpu_program import missing
from relaxjax.bench._host_program import host_program_text
from relaxjax.bench._overlap_models import Training, transformer
from relaxjax.bench._report import conditions
from relaxjax.ps import from_host, to_host
from relaxjax.schedule import Device, Link, analytic

TARGET = 0.6  # of forward products under a copy, in the best order, as of `_pulls`


def host_copies(
    *,
    random_orders: int = 20,
    sizes: Sequence[int] = (8 * MIB,),
    tflops: float = 400.0,
    memory: float = 3.35e12,
    bandwidth: float = 50e9,
    latency: float = 1e-5,
    make: Callable[[], Training] = transformer,
    out: str = "runs/bench",
) -> dict[str, Any]:
    """Compiles, replays and compares.

    Args:
      random_orders: how many.
      sizes: of transfers, bytes of leaves.
      tflops: 10^12 products and sums that the device computes in a second.
      memory: bytes that it moves in a second.
      bandwidth: bytes that the bus moves in a second.
      latency: seconds that a copy costs by itself.
      make: what is trained.
      out: folder for the JSON.

    Returns:
      What was seen, as saved.

    Raises:
      Unavailable: this machine cannot compile for GPUs.
    """
    if reason := missing():
        raise Unavailable(reason)
    start, training = time.perf_counter(), make()
    device, link = Device(tflops * 1e12, memory), Link(latency, bandwidth)
    params, batch = jax.tree.map(
        lambda x: jnp.zeros(x.shape, x.dtype), (training.params, training.batch)
    )
    params = to_host(params)

    def text_of(order: Sequence[str], size: int) -> str:
        loss = from_host(training.loss, order=order, bucket_bytes=size)
        return host_program_text(jax.jit(jax.value_and_grad(loss)), params, batch)

    orders = orders_of(training, analytic(device), link, random_orders)
    rows = compared(text_of, orders, sizes, device, link)
    result = {
        "conditions": conditions(
            card="H100, compiled for, not run",
            nbytes=sum(x.nbytes for x in jax.tree.leaves(params)),
            tflops=tflops,
            memory=memory,
            bandwidth=bandwidth,
            latency=latency,
            seconds=round(time.perf_counter() - start),
        ),
        "target": TARGET,
        "rows": rows,
    }
    report(result, "Copies from host memory in order", out, "host_copies")
    return result

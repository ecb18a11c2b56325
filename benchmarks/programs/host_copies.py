"""How much of copies from and to host memory hides in a program for one H100.

As `benchmarks.programs.pulls`, for the gradient of `relaxjax.ps.from_host`: params are
copied to the device in an order, gradients back in its reverse. In the replay both
share one link, where a bus has two directions: the worse case.

XLA's scheduler takes a copy from host memory for a thing of no time, and puts nothing
beside it on purpose. So each program is compiled twice: as it comes, and "profiled", in
which XLA is told that every instruction takes what it takes in the replay (JAX measures
such a profile by itself under `jax_enable_pgle`).
"""

import time
from collections.abc import Callable, Sequence
from tempfile import NamedTemporaryFile
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.programs.ahead_of_time import Unavailable
from benchmarks.programs.compiled_orders import MIB, compared, orders_of, report
from benchmarks.programs.gpu_program import missing
from benchmarks.programs.host_program import host_program_text
from benchmarks.programs.overlap_models import Training, transformer
from benchmarks.report import conditions
from relaxjax.programs import Instruction, is_host_copy, parse, shape_nbytes
from relaxjax.ps import from_host, to_host
from relaxjax.schedule import Device, Link, analytic
from relaxjax.schedule._hlo_cost import FREE, seconds

Compiler = Callable[[Sequence[str], int], str]
PROFILE = "xla_gpu_pgle_profile_file_or_directory_path"
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
    orders = orders_of(training, analytic(device), link, random_orders)
    told = {f"{name}, profiled": order for name, order in orders.items()}
    plain, profiled = _compilers(training, device, link)
    rows = compared(plain, orders, sizes, device, link)
    rows += compared(profiled, told, sizes, device, link)
    result = {
        "conditions": conditions(
            card="H100, compiled for, not run",
            nbytes=sum(
                x.size * x.dtype.itemsize for x in jax.tree.leaves(training.params)
            ),
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


def _compilers(training: Training, device: Device, link: Link) -> tuple[Compiler, ...]:
    """From an order and a size to a program: as it comes, and profiled."""
    params, batch = jax.tree.map(
        lambda x: jnp.zeros(x.shape, x.dtype), (training.params, training.batch)
    )
    params = to_host(params)

    def plain(order: Sequence[str], size: int, **how: Any) -> str:
        loss = from_host(training.loss, order=order, bucket_bytes=size)
        fn = jax.jit(jax.value_and_grad(loss))
        return host_program_text(fn, params, batch, **how)

    def profiled(order: Sequence[str], size: int) -> str:
        with NamedTemporaryFile("w", suffix=".pbtxt") as file:
            file.write(profile(plain(order, size), device, link))
            file.flush()
            return plain(order, size, options={PROFILE: file.name})

    return plain, profiled


def profile(text: str, device: Device, link: Link) -> str:
    """Microseconds of each instruction, as XLA reads them (ProfiledInstructionsProto).

    Args:
      text: of a scheduled module.
      device: rates of what computes.
      link: rate of copies between the memories.
    """
    module = parse(text)
    body = {i.name: i for i in module.computations[module.entry or ""]}

    def cost(instruction: Instruction) -> float:
        if is_host_copy(instruction):
            return link.seconds(shape_nbytes(body[instruction.operands[0]].shape))
        if instruction.opcode == "copy-done":
            return 0.0
        return seconds(instruction, body, module.computations, device)

    timed = {i.name: 1e6 * cost(i) for i in body.values() if i.opcode not in FREE}
    return "".join(
        f'costs {{ name: "{n}" cost_us: {t:.4f} }}\n' for n, t in timed.items()
    )

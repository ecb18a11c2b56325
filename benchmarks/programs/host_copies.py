"""How much of copies from and to host memory hides in a program for one H100.

What `benchmarks.programs.pulls` does, for the gradient of `relaxjax.ps.from_host`:
params are copied to the device in an order, gradients back in its reverse. In the
replay both share one link, where a bus has two directions: the worse case.

XLA's scheduler takes a copy from host memory to cost no time, and puts nothing beside
it on purpose. So each program is compiled twice: as it comes, and "profiled", with a
profile in which every instruction takes as long as in the replay (JAX measures such a
profile by itself under `jax_enable_pgle`).
"""

import time
from collections.abc import Callable, Sequence
from tempfile import NamedTemporaryFile
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.programs.ahead_of_time import Gigabytes, Microseconds, Tflops, rates
from benchmarks.programs.compiled_orders import MIB, compared, orders_of, report
from benchmarks.programs.gpu_program import missing
from benchmarks.programs.host_program import host_program_text
from benchmarks.programs.overlap_models import Workload, transformer
from benchmarks.report import RandomOrders, Result, Run, Unavailable, benchmark
from relaxjax.programs import Instruction, is_host_copy, parse, shape_nbytes
from relaxjax.ps import from_host, to_host
from relaxjax.schedule import Device, Link, analytic
from relaxjax.schedule.graphs._hlo_cost import FREE, seconds

Compiler = Callable[[Sequence[str], int], str]
PROFILE = "xla_gpu_pgle_profile_file_or_directory_path"
SIZES = (8 * MIB,)  # bytes of leaves that travel together


# Without a driver, JAX's CUDA plugin can only compile.
@benchmark("host_copies", platform="cpu")
def host_copies(
    run: Run,
    random_orders: RandomOrders = 20,
    tflops: Tflops = 400,
    gigabytes: Gigabytes = 50,
    microseconds: Microseconds = 10,
) -> Result:
    """Orders of copies from host memory in a program for one H100, without one."""
    if reason := missing():
        raise Unavailable(reason)
    start, training = time.perf_counter(), transformer()
    device, link, known = rates(tflops, gigabytes, microseconds)
    orders = orders_of(training, analytic(device), link, random_orders)
    again = {f"{name}, profiled": order for name, order in orders.items()}
    plain, profiled = _compilers(training, device, link)
    rows = compared(plain, orders, SIZES, device, link)
    rows += compared(profiled, again, SIZES, device, link)
    leaves = jax.tree.leaves(training.params)
    conditions = run.conditions(
        **known,
        nbytes=sum(x.size * x.dtype.itemsize for x in leaves),
        seconds=round(time.perf_counter() - start),
    )
    return report(run, conditions, rows, "Copies from host memory in order")


def _compilers(training: Workload, device: Device, link: Link) -> tuple[Compiler, ...]:
    """From an order and a size to a program: as it comes, and profiled."""
    params, batch = jax.tree.map(
        lambda x: jnp.zeros(x.shape, x.dtype), (training.params, training.batch)
    )
    params = to_host(params)

    def plain(order: Sequence[str], size: int, **knobs: Any) -> str:
        loss = from_host(training.loss, order=order, bucket_bytes=size)
        fn = jax.jit(jax.value_and_grad(loss))
        return host_program_text(fn, params, batch, **knobs)

    def profiled(order: Sequence[str], size: int) -> str:
        with NamedTemporaryFile("w", suffix=".pbtxt") as file:
            file.write(profile(plain(order, size), device, link))
            file.flush()
            return plain(order, size, options={PROFILE: file.name})

    return plain, profiled


def profile(text: str, device: Device, link: Link) -> str:
    """Microseconds of each instruction, as XLA reads them (ProfiledInstructionsProto).

    Args:
      text: text of a scheduled module.
      device: rates of the device.
      link: the link between the memories.
    """
    module = parse(text)
    body = {i.name: i for i in module.computations[module.entry or ""]}

    def cost(instruction: Instruction) -> float:
        if is_host_copy(instruction):
            return link.seconds(shape_nbytes(body[instruction.operands[0]].shape))
        if instruction.opcode == "copy-done":
            return 0.0
        return seconds(instruction, body, module, device)

    timed = {i.name: 1e6 * cost(i) for i in body.values() if i.opcode not in FREE}
    return "".join(
        f'costs {{ name: "{n}" cost_us: {t:.4f} }}\n' for n, t in timed.items()
    )

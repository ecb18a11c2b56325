"""Where the command's workers run: several hosts, GPUs, or emulated CPU devices."""

import os

import jax
import numpy as np
import typer
from jax.sharding import Mesh

from relaxjax.cli.common._known import DEFAULT_WORKERS
from relaxjax.workers import Emulation, emulate

MOST_CPU_DEVICES = 16  # more workers than that are emulated by vmap on one device
AXIS = "data"


def set_up(workers: int | None, processes: int = 1) -> Mesh | Emulation:
    """Starts the backend, and returns the mesh of the workers.

    With several processes, every device of each process is a worker. Otherwise each
    worker gets its own device where there are enough (as many CPU devices as needed are
    emulated), or all workers are emulated on one device.

    None workers means all devices, or `DEFAULT_WORKERS` where there is one process.

    Raises:
      ValueError: several processes have another number of devices than `workers`.
    """
    count = DEFAULT_WORKERS if workers is None and processes == 1 else workers
    if count is not None:
        _emulate_cpu_devices(max(1, count // processes))
    devices = jax.devices()
    if processes > 1:
        if workers not in (None, len(devices)):
            raise ValueError(
                f"--workers {workers}: the {processes} processes have {len(devices)} "
                "devices together, and each is a worker; leave --workers out, or start "
                "as many processes as give that number"
            )
        return Mesh(np.asarray(devices), (AXIS,))
    assert count is not None
    return mesh_of(count)


def mesh_of(workers: int) -> Mesh | Emulation:
    """A mesh of workers on this host: a device each, if there are enough."""
    devices = jax.devices()
    on_cpu = devices[0].platform == "cpu"
    if len(devices) < workers or (on_cpu and workers > MOST_CPU_DEVICES):
        return emulate(workers)
    return Mesh(np.asarray(devices[:workers]), (AXIS,))


def one_worker() -> Mesh | Emulation:
    """A single worker; with several processes, each has its own."""
    return mesh_of(1) if jax.process_count() == 1 else emulate(1)


def share_cores(mesh: Mesh | Emulation) -> bool:
    """Whether the workers of a mesh compute on the same cores, one after the other."""
    return isinstance(mesh, Emulation) or mesh.devices.flat[0].platform == "cpu"


def describe(mesh: Mesh | Emulation) -> str:
    """Where the workers of a mesh are, in words."""
    if isinstance(mesh, Emulation):
        return f"emulated on one {jax.devices()[0].platform} device"
    devices = f"{mesh.devices.flat[0].platform} devices"
    if jax.process_count() > 1:
        return f"the {devices} of {jax.process_count()} processes"
    shared = " that share this machine's cores" if devices.startswith("cpu") else ""
    return f"{devices}{shared}"


def own_rows(mesh: Mesh | Emulation) -> tuple[int, int]:
    """Which part of each batch this process feeds, and into how many it is cut."""
    if isinstance(mesh, Emulation):
        return 0, 1
    return jax.process_index(), jax.process_count()


def _emulate_cpu_devices(count: int) -> None:
    """Sets the number of CPU devices, which takes effect only before they are used."""
    if count > MOST_CPU_DEVICES:
        return
    # XLA's thread pool on CPU must outnumber the devices, or they starve each other; it
    # takes its size from this variable when the backend starts.
    threads = max(int(os.environ.get("NPROC", 0)), 2 * count, os.cpu_count() or 1)
    os.environ["NPROC"] = str(threads)
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError:  # a backend is running already; use the devices it has
        return


def emulate_devices(count: int) -> None:
    """Emulates CPU devices, with enough threads, before JAX is first used.

    Raises:
      typer.Exit: with code 2, where there are fewer devices than `count`.
    """
    os.environ["NPROC"] = str(max(int(os.environ.get("NPROC", 0)), 2 * count + 8))
    jax.config.update("jax_num_cpu_devices", count)
    available = jax.device_count()
    if available < count:
        message = f"relaxjax: {count} devices are needed, {available} are here"
        typer.echo(message, err=True)
        raise typer.Exit(2)

"""The program that GPUs would run, compiled on a machine that has none.

JAX's CUDA plugin compiles for a card that is only described (`h100.txtpb`): no driver,
no NVIDIA library, and nothing that could run. What comes out is the scheduled HLO, with
the collectives, their dtypes and the place of each start and done.

It rests on `jax.experimental.topologies`, which may change, and on the plugin, some
480 MB, in the optional extra `gpu-compile`; both must have JAX's own version. An
environment with the plugin and without a driver warns whenever JAX looks for devices,
unless `jax_platforms` says "cpu": give it an environment of its own.
"""

from collections.abc import Sequence
from importlib.resources import files
from importlib.util import find_spec

import jax
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh

from benchmarks.report import Unavailable

PLUGINS = ("jax_plugins.xla_cuda12", "jax_plugins.xla_cuda13")


def gpu_mesh(
    shape: Sequence[int] = (8,),
    axis_names: Sequence[str] = ("data",),
    *,
    hosts: int = 1,
) -> Mesh:
    """A mesh of H100s that can be compiled for, and nothing else.

    Args:
      shape: shape of the mesh.
      axis_names: axis names of the mesh.
      hosts: number of hosts, which have equally many devices.

    Returns:
      A mesh with Auto axes.

    Raises:
      Unavailable: the extra is not installed, or its version does not fit JAX's.
      ValueError: the devices do not divide among the hosts.
    """
    count = int(np.prod(shape))
    if count % hosts:
        raise ValueError(f"gpu_mesh: {count} devices do not divide among {hosts} hosts")
    reason = missing()
    if reason:
        raise Unavailable(reason)
    target = files("benchmarks.programs").joinpath("h100.txtpb").read_text()
    layout = f"1x{hosts}x{count // hosts}"
    try:
        topology = topologies.get_topology_desc(
            platform="cuda", target_config=target, topology=layout
        )
    except NotImplementedError as error:
        raise Unavailable(
            f"JAX {jax.__version__} found its CUDA plugin and does not use it: is the "
            'plugin of another version? pip install "relaxjax[gpu-compile]" brings both'
        ) from error
    return Mesh(np.reshape(topology.devices, shape), axis_names)


def missing() -> str | None:
    """Why no GPU program can be compiled here, or None if one can."""
    if not any(map(_installed, PLUGINS)):
        return (
            "compiling for GPUs without one needs JAX's CUDA plugin (some 480 MB, "
            'Linux): pip install "relaxjax[gpu-compile]", in an environment of its own'
        )
    return None


def _installed(plugin: str) -> bool:
    try:
        return find_spec(plugin) is not None
    except ModuleNotFoundError:  # not even the namespace package
        return False

"""The program that TPUs would run, compiled on a machine that has none.

`libtpu`, some 140 MB, compiles for a topology that is only named: no TPU, and nothing
that could run. Several slices show the hop between them, over the data-center network.

It rests on `jax.experimental.topologies`, which may change, and on the optional extra
`tpu-compile`. Keep `jax_platforms` at "cpu": else JAX looks for a TPU.
"""

import os
from collections.abc import Sequence
from importlib.util import find_spec

import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh

from benchmarks.report import Unavailable


def tpu_mesh(
    shape: Sequence[int] = (8,),
    axis_names: Sequence[str] = ("data",),
    *,
    topology: str = "v5e:2x4",
    slices: int = 1,
) -> Mesh:
    """A mesh of TPUs that can be compiled for, and nothing else.

    Args:
      shape: shape of the mesh.
      axis_names: axis names of the mesh.
      topology: kind and layout of a slice, as libtpu spells it.
      slices: number of slices; the first axis of the mesh runs over them first.

    Returns:
      A mesh with Auto axes.

    Raises:
      Unavailable: the extra is not installed.
      ValueError: the mesh does not have as many devices as the slices.
    """
    reason = missing()
    if reason:
        raise Unavailable(reason)
    # libtpu assumes that it is a device's only user, also where it only compiles.
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    described = topologies.get_topology_desc(
        platform="tpu", topology_name=topology, num_slices=slices
    )
    count = len(described.devices)
    if int(np.prod(shape)) != count:
        raise ValueError(
            f"tpu_mesh: shape={tuple(shape)} has {int(np.prod(shape))} devices, and "
            f"{slices} of {topology!r} have {count}; give a shape of as many"
        )
    return Mesh(np.reshape(described.devices, shape), axis_names)


def missing() -> str | None:
    """Why no TPU program can be compiled here, or None if one can."""
    if find_spec("libtpu") is None:
        return (
            "compiling for TPUs without one needs libtpu (some 140 MB, Linux): "
            'pip install "relaxjax[tpu-compile]"'
        )
    return None

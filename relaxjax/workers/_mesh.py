"""Where workers live: devices of a mesh, or emulated on one device."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import AbstractMesh, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from relaxjax._core._axis import AxisName, axes_of


@dataclass(frozen=True)
class Emulation:
    """Workers emulated on one device by `jax.vmap`; stands where a mesh may stand.

    Attributes:
      axes: pairs of axis name and size, outermost first.
    """

    axes: tuple[tuple[str, int], ...]

    @property
    def axis_names(self) -> tuple[str, ...]:
        """Names of the axes, outermost first."""
        return tuple(name for name, _ in self.axes)

    @property
    def shape(self) -> dict[str, int]:
        """Size of each axis."""
        return dict(self.axes)

    @property
    def size(self) -> int:
        """Number of workers."""
        return math.prod(size for _, size in self.axes)


def emulate(workers: int | Mapping[str, int]) -> Emulation:
    """Workers emulated on one device: use it wherever a mesh is asked for.

    Args:
      workers: their number (the axis is then called `"data"`), or the size of each
        axis by name, outermost first.

    Returns:
      A mesh-like object, plain data.

    Raises:
      ValueError: no axis, or a size below 1.

    Example:
      >>> import relaxjax
      >>> relaxjax.emulate({"host": 2, "device": 4}).size
      8
    """
    shape = workers if isinstance(workers, Mapping) else {"data": workers}
    for name, size in shape.items():
        if not isinstance(size, int | np.integer) or isinstance(size, bool) or size < 1:
            raise ValueError(
                f"emulate: axis {name!r} has size {size!r}; it must be a whole number "
                "of workers, 1 or more"
            )
    if not shape:
        raise ValueError("emulate: no axis given; say emulate(8) or a mapping of sizes")
    axes_of(tuple(shape))
    return Emulation(tuple((name, int(size)) for name, size in shape.items()))


class WorkerMesh(NamedTuple):
    """A mesh, and which of its axes workers are counted along.

    Attributes:
      mesh: with Auto axes, so that placement is the compiler's where not ours.
      axis_name: the data-parallel axes, outermost first.
      n: number of workers.
    """

    mesh: Mesh | Emulation
    axis_name: tuple[str, ...]
    n: int

    @property
    def processes(self) -> int:
        """Number of processes that the mesh spans."""
        if isinstance(self.mesh, Emulation):
            return 1
        return len({device.process_index for device in self.mesh.devices.flat})

    def sharding(self, spec: P | None = None) -> NamedSharding:
        """How an array with a leading worker axis lies on the mesh."""
        assert isinstance(self.mesh, Mesh)
        return NamedSharding(self.mesh, P(self.axis_name) if spec is None else spec)


def workers_of(mesh: Any, axis_name: AxisName | None, caller: str) -> WorkerMesh:
    """Checks a user's mesh and axis name."""
    if isinstance(mesh, AbstractMesh):
        mesh = _concrete(mesh, caller)
    if isinstance(mesh, Mesh):
        mesh = Mesh(mesh.devices, mesh.axis_names)  # Auto axes
    elif not isinstance(mesh, Emulation):
        hint = mesh if isinstance(mesh, int) else 8
        raise TypeError(
            f"{caller}: mesh={mesh!r} is not a mesh. For workers on devices pass "
            f'jax.make_mesh(({hint},), ("data",)); to emulate them on one device pass '
            f"relaxjax.emulate({hint})"
        )
    names = tuple(mesh.axis_names) if axis_name is None else axes_of(axis_name)
    unknown = [name for name in names if name not in mesh.shape]
    if unknown:
        raise ValueError(
            f"{caller}: the mesh has no axis {unknown[0]!r}; its axes are "
            f"{', '.join(map(repr, mesh.axis_names))}"
        )
    if isinstance(mesh, Emulation) and set(names) != set(mesh.axis_names):
        raise ValueError(
            f"{caller}: axis_name={axis_name!r} leaves out axes of an emulated mesh "
            f"{mesh.shape}; there is no compiler to take them: name them all"
        )
    return WorkerMesh(mesh, names, math.prod(mesh.shape[name] for name in names))


def _concrete(mesh: AbstractMesh, caller: str) -> Mesh:
    need, have = mesh.size, jax.device_count()
    if need > have:
        raise ValueError(
            f"{caller}: a mesh of {need} devices was asked for, and there are {have}. "
            f"Emulate the workers on one device with relaxjax.emulate({need}), or "
            f'emulate devices with jax.config.update("jax_num_cpu_devices", {need}) '
            "before JAX is first used"
        )
    return jax.make_mesh(tuple(mesh.shape.values()), tuple(mesh.axis_names))

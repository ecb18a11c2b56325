"""Where workers live: devices of a mesh, or emulated on one device."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import jax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from relaxjax.workers._axis_sizes import require_axes
from relaxjax.workers._emulated_keys import warn_of_default
from relaxjax.workers._processes import process_indices, workers_here


@dataclass(frozen=True)
class Emulation:
    """Workers emulated on one device by `jax.vmap`; usable wherever a mesh is.

    Attributes:
      axes: name and size of each axis, outermost first.
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
    """Emulates workers on one device: use the result wherever a mesh is expected.

    Args:
      workers: number of workers (on an axis called `"data"`), or the size of each axis
        by name, outermost first.

    Returns:
      A mesh-like object, plain data.

    Raises:
      ValueError: no axis, a size below 1, or more workers than 131072.

    Warns:
      UserWarning: `jax_default_prng_impl` is one whose equal keys draw unlike numbers
        under emulation.

    Example:
      >>> import relaxjax
      >>> relaxjax.emulate({"host": 2, "device": 4}).size
      8
    """
    shape = workers if isinstance(workers, Mapping) else {"data": workers}
    require_axes(shape)
    warn_of_default()
    return Emulation(tuple((name, int(size)) for name, size in shape.items()))


class WorkerMesh(NamedTuple):
    """A mesh, and the axes that its workers are counted along."""

    mesh: Mesh | Emulation  # of Auto axes: the compiler places whatever we do not
    axis_name: tuple[str, ...]  # the data-parallel axes, outermost first
    n: int  # number of workers

    @property
    def sizes(self) -> tuple[int, ...]:
        """Size of each data-parallel axis."""
        return tuple(self.mesh.shape[name] for name in self.axis_name)

    @property
    def process_indices(self) -> tuple[int, ...]:
        """Indices of the processes that the mesh spans, rising."""
        if isinstance(self.mesh, Emulation):
            return (jax.process_index(),)
        return process_indices(self.mesh)

    @property
    def processes(self) -> int:
        """Number of processes that the mesh spans."""
        return 1 if isinstance(self.mesh, Emulation) else len(self.process_indices)

    @property
    def here(self) -> int:
        """Number of workers that have a device of this process."""
        mesh, axes = self.mesh, self.axis_name
        return self.n if isinstance(mesh, Emulation) else workers_here(mesh, axes)

    def sharding(self, spec: P | None = None) -> NamedSharding:
        """Sharding of an array with a leading worker axis."""
        assert isinstance(self.mesh, Mesh)
        return NamedSharding(self.mesh, P(self.axis_name) if spec is None else spec)

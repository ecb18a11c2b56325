"""Where workers live: devices of a mesh, or emulated on one device.

Whatever a worker owns is held with one leading axis over the workers: on a mesh it is
split over the devices, so each holds its own slice and nothing more; emulated, it is an
ordinary batch axis. Nothing is ever declared to be the same on all workers, so nothing
can be silently different.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AbstractMesh, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from relaxjax._axis import AxisName, axes_of
from relaxjax._dtypes import is_key


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


class Workers(NamedTuple):
    """A mesh, and which of its axes workers are counted along.

    Attributes:
      mesh: with Auto axes, so that placement is the compiler's where not ours.
      axis_name: the data-parallel axes, outermost first.
      n: number of workers.
    """

    mesh: Mesh | Emulation
    axis_name: tuple[str, ...]
    n: int

    def sharding(self, spec: P | None = None) -> NamedSharding:
        """How an array with a leading worker axis lies on the mesh."""
        assert isinstance(self.mesh, Mesh)
        return NamedSharding(self.mesh, P(self.axis_name) if spec is None else spec)


def workers_of(mesh: Any, axis_name: AxisName | None, caller: str) -> Workers:
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
    return Workers(mesh, names, math.prod(mesh.shape[name] for name in names))


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


def split(tree: Any) -> Any:
    """Takes this worker's slice: drops a leading axis of 1."""
    return jax.tree.map(lambda x: x[0], tree)


def stack(tree: Any) -> Any:
    """Adds the leading axis again."""
    return jax.tree.map(lambda x: jnp.asarray(x)[None], tree)


def per_worker(fn: Callable[..., Any], workers: Workers, *, batch: bool) -> Callable:
    """Maps `fn` over the workers' axis.

    Args:
      fn: from one worker's arguments to one worker's outputs.
      workers: where.
      batch: whether the last argument is a batch, whose leading axis is divided among
        the workers; the other arguments have a leading worker axis.

    Returns:
      A function of stacked arguments, to be jitted; all its outputs are stacked.
    """
    mesh, names = workers.mesh, workers.axis_name
    if isinstance(mesh, Emulation):
        return _emulated(fn, workers, batch)

    def local(*args):
        args = (*split(args[:-1]), args[-1]) if batch else split(args)
        return stack(fn(*args))

    return jax.shard_map(
        local,
        mesh=mesh,
        in_specs=P(names),
        out_specs=P(names),
        axis_names=frozenset(names),
        check_vma=False,
    )


def _emulated(fn: Callable[..., Any], workers: Workers, batch: bool) -> Callable:
    sizes = tuple(workers.mesh.shape[name] for name in workers.axis_name)
    mapped = fn
    for name in reversed(workers.axis_name):
        mapped = jax.vmap(mapped, axis_name=name)

    def unfold(x):  # [n, ...] -> [outer, inner, ...]
        return x.reshape(*sizes, *x.shape[1:])

    def divide(x):  # [n * b, ...] -> [outer, inner, b, ...]
        return x.reshape(*sizes, x.shape[0] // workers.n, *x.shape[1:])

    def fold(x):
        return x.reshape(workers.n, *x.shape[len(sizes) :])

    def stacked(*args):
        rest, last = (args[:-1], args[-1:]) if batch else (args, ())
        args = *jax.tree.map(unfold, rest), *jax.tree.map(divide, last)
        return jax.tree.map(fold, mapped(*args))

    return stacked


def place(leaf: np.ndarray, workers: Workers, spec: P) -> jax.Array:
    """Puts a stacked host array [n, ...] on the mesh; `spec` is of the other axes."""
    if isinstance(workers.mesh, Emulation):
        return jnp.asarray(leaf)
    sharding = workers.sharding(P(workers.axis_name, *spec))
    return jax.make_array_from_callback(leaf.shape, sharding, lambda index: leaf[index])


def to_workers(
    tree: Any, mesh: Any, *, axis_name: AxisName | None = None, same: bool = False
) -> Any:
    """Gives every worker its own copy of a tree, as worker state for `data_parallel`.

    Typed PRNG keys are folded with the worker's index, so that workers draw different
    numbers. With several processes, all receive process 0's values.

    Args:
      tree: a pytree of arrays, numbers or typed keys: batch statistics, counters, ...
      mesh: a mesh, or `relaxjax.emulate(...)`.
      axis_name: the data-parallel axes of the mesh; None means all of them.
      same: keep typed keys the same on all workers.

    Returns:
      The tree with a leading worker axis [n, ...] on each leaf, placed on the mesh.

    Raises:
      TypeError: `mesh` is not one.
      ValueError: unknown axis.

    Example:
      >>> import relaxjax
      >>> print(relaxjax.to_workers(7, relaxjax.emulate(3)))
      [7 7 7]
    """
    workers = workers_of(mesh, axis_name, "to_workers")

    def one(leaf):
        if isinstance(leaf, jax.Array) and is_key(leaf):
            data = jax.random.key_data(_fold_keys(leaf, workers.n, same))
            placed = place(_process_zero(data), workers, P())
            return jax.random.wrap_key_data(placed, impl=jax.random.key_impl(leaf))
        host = _process_zero(jnp.asarray(leaf))
        stacked = np.broadcast_to(host, (workers.n, *host.shape))
        return place(stacked, workers, _other_spec(leaf, workers))

    return jax.tree.map(one, tree)


def _fold_keys(keys: jax.Array, n: int, same: bool) -> jax.Array:
    """Key[...] -> key[n, ...]."""

    def fold(i):
        folded = jax.vmap(lambda key: jax.random.fold_in(key, i))(keys.ravel())
        return keys if same else folded.reshape(keys.shape)

    return jax.vmap(fold)(jnp.arange(n))


def _other_spec(leaf: Any, workers: Workers) -> P:
    """How a leaf is already sharded over the axes that are not the workers'."""
    sharding = getattr(leaf, "sharding", None)
    if isinstance(sharding, NamedSharding) and isinstance(workers.mesh, Mesh):
        names = {name for part in sharding.spec if part for name in axes_of(part)}
        if names <= set(workers.mesh.axis_names) - set(workers.axis_name):
            return sharding.spec
    return P()


def _process_zero(array: jax.Array) -> np.ndarray:
    if jax.process_count() == 1:
        return np.asarray(array)
    return np.asarray(multihost_utils.broadcast_one_to_all(np.asarray(array)))

"""Start-up of sharded training: slices for every worker, and one model from them."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import optax

from relaxjax._core._arrays import require_dtypes
from relaxjax._core._axis import AxisName, axes_of
from relaxjax._core._checks import require_transformation
from relaxjax._core._tree import leaf_name
from relaxjax._core.traced._extra_args import giving
from relaxjax.collectives import cut, of_a_worker, whole_leaves
from relaxjax.fsdp._gathered import Gathered
from relaxjax.fsdp._gathered_state import GatheredState
from relaxjax.gradients import require_elementwise, require_same_by_slice
from relaxjax.workers import WorkerMesh, require_agreement, workers_of
from relaxjax.workers import init_state as state_of_workers

_CALLER = "fsdp.init"


def init(
    tx: optax.GradientTransformation,
    params: Any,
    mesh: Any,
    *,
    axis_name: AxisName | None = None,
    over: AxisName | None = None,
    layers: Iterable[str] = (),
    extra_args: Mapping[str, Any] | None = None,
) -> tuple[Any, Any]:
    """Gives every worker its slice of the params, and the optimizer's state for it.

    Experimental: this may change in any release.

    Args:
      tx: an elementwise optimizer, such as `optax.adamw`; or, where params are sharded
        over some of the axes only, a relaxation over the others, such as
        `relaxjax.diloco(optax.adamw(3e-4), "island", sync_every=30)`, of slices.
      params: a pytree of floating arrays, as for one device.
      mesh: a `jax.sharding.Mesh`, or `relaxjax.emulate(...)`.
      axis_name: the data-parallel axes; None means all axes of the mesh.
      over: the axes that params are sharded over, the last of `axis_name`; None: all.
      layers: names, or beginnings of names, of leaves [layers, ...] that a scan goes
        through, such as `("blocks",)`: they are cut layer by layer.
      extra_args: arrays (or their shapes and dtypes) and functions that `tx.update`
        needs beside gradients and params, by name.

    Returns:
      `(shards, opt_state)` for `relaxjax.data_parallel`: the tree of params with a
      `Shard` for each leaf, of value [n, c] or [n, layers, c].

    Raises:
      TypeError: `mesh` is not a mesh.
      ValueError: leaves are not floating, the optimizer (or one that a relaxation over
        the other axes has inside) is not elementwise, or looks at the shapes of leaves,
        `over` is not the last axes, `layers` names no leaf, or processes disagree.

    Example:
      >>> import jax.numpy as jnp, optax, relaxjax
      >>> params = {"w": jnp.ones((3, 3)), "blocks": jnp.ones((12, 5))}
      >>> shards, state = relaxjax.fsdp.init(
      ...     optax.adam(0.1), params, relaxjax.emulate(4), layers=["blocks"])
      >>> shards["w"].value.shape, shards["blocks"].value.shape
      ((4, 3), (4, 12, 2))
      >>> relaxjax.fsdp.whole(shards)["blocks"].shape
      (12, 5)
    """
    require_transformation("fsdp.init", "tx", tx)
    workers = workers_of(mesh, axis_name, _CALLER)
    k = _slices(workers, over)
    layers = _require_layers(params, layers)
    axes = axes_of(over or workers.axis_name)
    across = None if axes == workers.axis_name else workers  # relaxations over others
    with giving(extra_args):
        require_agreement(tx, params, workers, extra_args)
        require_dtypes(params, _CALLER, None)
        require_elementwise(tx, params, _CALLER, across, axes)
        shards = cut(params, workers, k, layers)
        require_same_by_slice(tx, params, of_a_worker(shards), _CALLER, across)
        return shards, state_of_workers(tx, shards, workers)


def init_state(
    loss: Gathered, shards: Any, mesh: Any, *, axis_name: AxisName | None = None
) -> GatheredState:
    """The first state of a `Gathered` that keeps something from step to step.

    Args:
      loss: what `relaxjax.fsdp.gathered` returned.
      shards: worker state of `relaxjax.fsdp.init`, or the part of it that `loss` takes.
      mesh: the same mesh.
      axis_name: the same data-parallel axes.

    Returns:
      Worker state; of layers [n, layers, ...].

    Raises:
      ValueError: the shards are not cut for the axes of `loss`.

    Example:
      >>> import jax.numpy as jnp, optax, relaxjax
      >>> from relaxjax import compression, fsdp
      >>> loss = fsdp.gathered(lambda w, x: jnp.sum(w * x), "data",
      ...     gradients=compression.error_feedback(compression.quantize(4)))
      >>> mesh = relaxjax.emulate(4)
      >>> shards, _ = fsdp.init(optax.sgd(0.1), jnp.zeros(6), mesh)
      >>> fsdp.init_state(loss, shards, mesh).owed[0].residual.shape
      (4, 6)
    """
    workers = workers_of(mesh, axis_name, "fsdp.init_state")
    maker = optax.GradientTransformation(lambda params: loss.init(params), _no_update)
    return state_of_workers(maker, shards, workers)


def whole(shards: Any) -> Any:
    """One model to evaluate or export, joined from all slices.

    Args:
      shards: worker state from `relaxjax.fsdp.init` or a step. Where params are sharded
        over some axes only, it is the mean over the others.

    Returns:
      The tree of params, as for one device.

    Raises:
      ValueError: the tree has no shards.
    """
    return whole_leaves("fsdp.whole", shards)


def _no_update(updates: Any, state: Any, params: Any = None) -> Any:
    del updates, state, params
    raise NotImplementedError


def _slices(workers: WorkerMesh, over: AxisName | None) -> int:
    """The number of slices of each leaf."""
    axes = workers.axis_name if over is None else axes_of(over)
    if axes != workers.axis_name[-len(axes) :]:
        raise ValueError(
            f"{_CALLER}: over={over!r} must be the last of the data-parallel axes "
            f"{workers.axis_name}: put the axes that params are sharded over last, as "
            "in axis_name=('island', 'data'), over='data'"
        )
    return math.prod(workers.mesh.shape[name] for name in axes)


def _require_layers(params: Any, layers: Iterable[str]) -> tuple[str, ...]:
    layers = (layers,) if isinstance(layers, str) else tuple(layers)
    leaves = {leaf_name(p): x for p, x in jax.tree.leaves_with_path(params)}
    for prefix in layers:
        found = [x for x in leaves if x == prefix or x.startswith(f"{prefix}/")]
        if not found:
            raise ValueError(
                f"{_CALLER}: layers={prefix!r} names no leaf; they are "
                f"{', '.join(leaves)}"
            )
        counts = {jax.numpy.shape(leaves[x])[:1] for x in found}
        if len(counts) != 1 or counts & {(), (0,)}:
            raise ValueError(
                f"{_CALLER}: layers={prefix!r}: its leaves need the same number of "
                "layers, at least one, as their first axis; they have "
                f"{sorted(map(str, counts))}"
            )
    return layers

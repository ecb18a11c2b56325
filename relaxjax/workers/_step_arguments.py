"""The worker state that a step takes, and what it returns in its place."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from relaxjax._core._arrays import difference, require_arrays
from relaxjax._core._phases import clocks_of, ticking
from relaxjax._core._tree import key_path, layout_of, leaf_names
from relaxjax._core.layouts._copies import is_explicit
from relaxjax.workers._batches import mesh_of
from relaxjax.workers._mesh import WorkerMesh
from relaxjax.workers._metrics import require_numbers


def require_untyped(workers: WorkerMesh) -> None:
    """Refuses emulated workers whose arrays would be typed by a mesh around them."""
    around = jax.sharding.get_abstract_mesh()
    if not isinstance(workers.mesh, Mesh) and is_explicit(around):
        raise ValueError(
            "data_parallel: emulated workers are called inside jax.set_mesh of a mesh "
            f"with Explicit axes {around.axis_names}, by which jax.vmap cannot bring "
            "them together: call the step outside of it, or make that mesh with "
            "axis_types=(AxisType.Auto,) * its number of axes"
        )


def require_state(state: Any, workers: WorkerMesh) -> None:
    """Refuses what is no array, lies on other devices, or in another order of them."""
    require_arrays(state, "data_parallel")
    if not isinstance(workers.mesh, Mesh):
        return
    here = [device.id for device in workers.mesh.devices.flat]
    for name, leaf in zip(leaf_names(state), jax.tree.leaves(state), strict=True):
        mesh = mesh_of(leaf)
        there = here if mesh is None else [device.id for device in mesh.devices.flat]
        if there != here:
            raise ValueError(
                f"data_parallel: state leaf {name!r} lies on the devices {there}, and "
                f"the mesh of the step is of {here}: make the state for that mesh, by "
                "relaxjax.init or relaxjax.to_workers, or move it, by jax.device_put"
            )


def require_worker_axis(state: tuple[Any, ...], n: int) -> None:
    """Refuses state whose leaves do not have a leading axis of n workers."""
    last = (
        ". Only the last argument is the batch: pass several arrays of one as a tuple, "
        "such as step(params, opt_state, (inputs, labels))"
    )
    for path, leaf in jax.tree.leaves_with_path(state):
        shape = jnp.shape(leaf)
        if shape[:1] != (n,):
            raise ValueError(
                f"data_parallel: leaf {key_path(path[1:])!r} of state argument "
                f"{path[0].idx} has shape {shape}, without a leading axis of {n} "
                "workers. Params and optimizer state come from "
                "relaxjax.init(tx, params, mesh), everything else from "
                "relaxjax.to_workers(tree, mesh), both with this mesh"
                + last
                * (path[0].idx == len(state) - 1)
            )


def checked(step: Callable[..., Any]) -> Callable[..., tuple[Any, Any]]:
    """One worker's step, whose results are looked at in its trace."""

    def one_worker(*args):
        before = jax.tree.map(lambda x: x, args[:-1])  # modules of flax.nnx may change
        with ticking() as ticked:
            out = step(*args)
        if not isinstance(out, tuple) or len(out) != len(args):
            got = f"{len(out)} values" if isinstance(out, tuple) else type(out)
            raise TypeError(
                f"data_parallel: the step takes {len(args) - 1} states and a "
                "batch, so it must return a tuple of the same states and then "
                f"metrics ({len(args)} values); it returned {got}. A batch of "
                "several arrays is one argument, a tuple"
            )
        _require_clocks(before, ticked)
        _require_stable(before, out[:-1])
        require_numbers(out[-1])
        return out[:-1], out[-1]

    return one_worker


def _require_clocks(state: tuple[Any, ...], ticked: list[tuple[int, ...]]) -> None:
    """Refuses phases that nobody can end: their clocks are not in the state."""
    ends = sorted(end for coming in ticked for end in coming)
    if ends and not any(clock.ends for clock in clocks_of(state)):
        raise ValueError(
            "data_parallel: the step uses a transformation whose phase ends after "
            f"{ends[0]} steps, and its clock is not in the state that the step gets: "
            "the phase would never end. Pass the optimizer's state as relaxjax.init "
            "makes it; pass an nnx.Optimizer whole, as in model, optimizer = "
            "relaxjax.to_workers((model, optimizer), mesh), and not split by nnx.split"
        )


def _require_stable(before: tuple[Any, ...], after: tuple[Any, ...]) -> None:
    """Refuses state that changes in the step: the next call would compile anew."""
    for i, (old, new) in enumerate(zip(before, after, strict=True)):
        wrong = difference(layout_of(old), layout_of(new), dtypes=True)
        if wrong is None and jax.tree.structure(old) != jax.tree.structure(new):
            wrong = f"{jax.tree.structure(old)} became {jax.tree.structure(new)}"
        if wrong:
            raise ValueError(
                f"data_parallel: the step changed state argument {i}: {wrong}. It must "
                "return each state with the structure, shapes and dtypes it was given"
            )

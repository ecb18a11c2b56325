"""What a run is, in names and values; a checkpoint of another run is refused."""

import hashlib
import re
import warnings
from collections.abc import Mapping
from typing import Any

import jax
import optax

from relaxjax._core._axis import AxisName
from relaxjax._core._phases import clocks_of, set_phases
from relaxjax._core.traced._digests import without_addresses
from relaxjax._core.traced._extra_args import giving
from relaxjax.checkpoint._saved import Saved
from relaxjax.checkpoint._tree import is_array, named
from relaxjax.workers import (
    DIGESTS,
    MESH,
    TREE,
    UNSEEN,
    VERSIONS,
    bare_text,
    describe,
    version_line,
    workers_of,
)

ON_ANY_MESH = "the task and what it imports (digest on any mesh)"
_UNSEEN = (
    "restore: the update of the transformation could not be traced, so that nobody can "
    "tell whether it is that of the checkpoint. Give plan_of what the train step gives "
    "to update, as in extra_args={'name': jax.ShapeDtypeStruct((), jnp.float32)}"
)
_STRUCTURE = "what the states hold beside arrays (digest)"
_PROGRAMS = DIGESTS | {ON_ANY_MESH, _STRUCTURE}
"""Lines of ours; a user's own are compared, whatever they are called."""


def plan_of(
    tx: optax.GradientTransformation,
    params: Any,
    mesh: Any,
    *,
    axis_name: AxisName | None = None,
    extra_args: Mapping[str, Any] | None = None,
) -> dict[str, str]:
    """What a run is: model, transformation, mesh and versions, in names and values.

    Add what else may not change, such as the data: `{**plan_of(...), "data": "..."}`.

    Args:
      tx: the transformation that the train step uses.
      params: the params as for one device; only shapes and dtypes count.
      mesh: mesh of the workers.
      axis_name: the data-parallel axes; None means all axes of the mesh.
      extra_args: arrays (or their shapes and dtypes) and functions that `tx.update`
        takes by name beside params, to trace it with. Those that optax's optimizers
        ask for (`value`, `grad`, `value_fn`, `obj_fn`, `grad_fn`) need not be given.

    Returns:
      A mapping for `Checkpoints(plan=...)`. Transformations are compared by a digest
      of their program, hyper-parameters included.

    Raises:
      TypeError: `mesh` is not a mesh.
      ValueError: unknown axis.

    Example:
      >>> import jax.numpy as jnp, optax, relaxjax
      >>> tx = optax.chain(relaxjax.all_reduce("data"), optax.sgd(0.1))
      >>> plan = relaxjax.checkpoint.plan_of(tx, jnp.zeros(3), relaxjax.emulate(4))
      >>> plan["the mesh"]
      "{'data': 4}"
    """
    workers = workers_of(mesh, axis_name, "plan_of")
    with giving(extra_args):
        return describe(tx, params, workers, extra_args)


def require_same_run(saved: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Refuses a checkpoint of another run.

    The program is compared where versions and mesh are the same, as it depends on them;
    that of the task, where versions are.
    """
    around = {line for line in {**saved, **now} if line in VERSIONS or line == MESH}
    other = {k for k in around if saved.get(k) != now.get(k)}
    for line, was in saved.items():
        matter = other - {MESH} if line == ON_ANY_MESH else other
        if line in around or (line in _PROGRAMS and matter):
            continue
        if was == UNSEEN == now.get(line):
            warnings.warn(_UNSEEN, stacklevel=3)
        is_now = now.get(line, was)
        if line == TREE:  # where an older version has put down addresses
            was, is_now = bare_text(was), bare_text(is_now)
        if is_now != was:
            raise ValueError(
                f"restore: the checkpoint is of another run: {line} was {was} and is "
                f"{is_now}. Restore it with the relaxation, the model and the options "
                "that it was saved with, or save this run in another folder"
            )


def require_same_tree(saved: Saved, like: Any) -> None:
    """Refuses a checkpoint whose leaves are not those of a tree."""
    leaves = named(like)
    now = {k: (str(x.dtype), x.shape[1:]) for k, x in leaves.items() if is_array(x)}
    for name in {**saved.kinds, **now}:
        was, is_now = saved.kinds.get(name), now.get(name)
        if was != is_now:
            texts = (f"{x[0]}{list(x[1])}" if x else "absent" for x in (was, is_now))
            raise ValueError(
                "restore: the checkpoint is of another relaxation or model, or of a "
                "model that lies otherwise on its mesh (specs=): {!r} was {} and is "
                "{}. Restore it with what it was saved with, or save this run in "
                "another folder".format(name, *texts)
            )
    for name in (leaves.keys() - now.keys()) ^ saved.loop.keys():
        raise ValueError(
            f"restore: the checkpoint is of another tree: {name!r} is "
            + ("in it, and not in `state`" if name in saved.loop else "not in it")
        )


def structure_of(state: Any) -> dict[str, str]:
    """A digest of the classes of states, and of what they hold beside arrays."""
    counted = set_phases(state, [0 for _ in clocks_of(state)])
    text = without_addresses(str(jax.tree.structure(counted)))
    hosted = r"(Clock\[\(\([^)]*\), \d+), (?:True|False)\)"
    text = re.sub(hosted, r"\1)", text)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return {_STRUCTURE: digest, version_line("jax"): jax.__version__}

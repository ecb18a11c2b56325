"""What a run is, in names and values; a checkpoint of another one is refused."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import jax
import optax

from relaxjax._core._axis import AxisName
from relaxjax._core._phases import clocks_of, set_phases
from relaxjax.workers import describe, workers_of

_VERSION = "the version of "
_MESH = "the mesh"
_STRUCTURE = "what the states hold beside arrays (digest)"


def plan_of(
    tx: optax.GradientTransformation,
    params: Any,
    mesh: Any,
    *,
    axis_name: AxisName | None = None,
) -> dict[str, str]:
    """What a run is: model, transformation, mesh and versions, in names and values.

    Add what else may not change, such as the data: `{**plan_of(...), "data": "..."}`.

    Args:
      tx: the transformation that is trained with.
      params: as for one device; only shapes and dtypes count.
      mesh: where the workers are.
      axis_name: the data-parallel axes; None means all axes of the mesh.

    Returns:
      A mapping for `Checkpoints(plan=...)`. Transformations are compared by a digest
      of their program, hyper-parameters included.

    Raises:
      TypeError: `mesh` is not one.
      ValueError: unknown axis.

    Example:
      >>> import jax.numpy as jnp, optax, relaxjax
      >>> tx = optax.chain(relaxjax.all_reduce("data"), optax.sgd(0.1))
      >>> plan = relaxjax.checkpoint.plan_of(tx, jnp.zeros(3), relaxjax.emulate(4))
      >>> plan["the mesh"]
      "{'data': 4}"
    """
    return describe(tx, params, workers_of(mesh, axis_name, "plan_of"))


def require_same_run(saved: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Raises if a checkpoint is of another run.

    The program is compared where versions and mesh are the same, as it depends on them.

    Raises:
      ValueError: naming what differs, and both values.
    """
    lines = [k for k in {**saved, **now} if not k.startswith(_VERSION) and k != _MESH]
    around = [k for k in {**saved, **now} if k not in lines]
    alike = all(saved.get(k) == now.get(k) for k in around)
    for line in lines:
        if not alike and "digest" in line:
            continue
        was, is_now = saved.get(line), now.get(line)
        if was != is_now and None not in (was, is_now):
            raise ValueError(
                f"restore: the checkpoint is of another run: {line} was {was} and is "
                f"{is_now}. Restore it with the relaxation, the model and the options "
                "that it was saved with, or save this run in another folder"
            )


def structure_of(state: Any) -> dict[str, str]:
    """A digest of the classes of states, and of what they hold beside arrays."""
    counted = set_phases(state, [0 for _ in clocks_of(state)])
    text = re.sub(r"0x[0-9a-f]+", "", str(jax.tree.structure(counted)))
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return {_STRUCTURE: digest, f"{_VERSION}jax": jax.__version__}

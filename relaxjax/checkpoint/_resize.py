"""The state of some workers, as the state of others."""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from relaxjax._core.foreign._switches import unswitched
from relaxjax.checkpoint._merge import merged
from relaxjax.checkpoint._plan import require_same_run, require_same_tree, structure_of
from relaxjax.checkpoint._saved import Saved
from relaxjax.checkpoint._slices import Slices, guessed, slices_of, slices_told
from relaxjax.checkpoint._tree import data_of, filled, is_array, named, workers_in


class Resized(NamedTuple):
    """What a resize has done; prints as a table.

    Attributes:
      before: old number of workers.
      now: new number of workers.
      rules: what became of each array, by its name: "equal", "mean", "sum", "shard",
        "rebuild", "reset" or "own keys". "shard" is the mean of whole arrays, cut
        anew.
      meshes: old and new sizes of the axes by their names; None: not known.
    """

    before: int
    now: int
    rules: Mapping[str, str]
    meshes: tuple[Mapping[str, int], Mapping[str, int]] | None = None

    def __str__(self) -> str:
        """A line for each rule: how many arrays, and which."""
        axes = ""
        if self.meshes:
            axes = " ({} -> {})".format(*(dict(mesh) for mesh in self.meshes))
        lines = [f"{self.before} workers became {self.now}{axes}:"]
        for rule in sorted(set(self.rules.values())):
            names = [name for name, other in self.rules.items() if other == rule]
            shown = ", ".join(names[:3]) + (", .." if len(names) > 3 else "")
            lines.append(f"  {rule:8} {len(names):4}  {shown}")
        return "\n".join(lines)


@unswitched()
def resized(state: Any, like: Any) -> tuple[Any, Resized]:
    """Worker state as the state of other workers, as many or not.

    The mean of the models stays, and so does what residuals will deliver; copies of
    neighbors are made anew, and counters go on. The merge rule in the annotation of a
    field says what becomes of it (`relaxjax.checkpoint.MEAN` and others).

    Args:
      state: a tree of arrays [n, ...] of the old workers, all on this process.
      like: the tree of the new workers, [n', ...], as `relaxjax.init` makes it for
        their mesh (and their topology).

    Returns:
      The tree of the new workers, placed as `like` is, and what became of each array.
      Leaves that are not a `jax.Array` stay.

    Raises:
      ValueError: the rule of a state forbids it; arrays that should be the same on all
        workers are not; the trees are of different models or relaxations.

    Example:
      >>> import jax.numpy as jnp, optax, relaxjax
      >>> tx = optax.chain(relaxjax.all_reduce("data"), optax.adam(0.1))
      >>> eight = relaxjax.init(tx, {"w": jnp.ones(3)}, relaxjax.emulate(8))
      >>> six = relaxjax.init(tx, {"w": jnp.zeros(3)}, relaxjax.emulate(6))
      >>> (params, opt_state), report = relaxjax.checkpoint.resized(eight, six)
      >>> params["w"].shape, float(params["w"].mean())
      ((6, 3), 1.0)
      >>> print(report)
      8 workers became 6:
        equal       1  1/1/0/count
        mean        3  0/w, 1/1/0/mu/w, 1/1/0/nu/w
    """
    before, leaves = workers_in(state), named(state)
    arrays = {k: np.asarray(data_of(x)) for k, x in leaves.items() if is_array(x)}
    return _resized(arrays, slices_of(state), before, like, leaves)


def restored(
    saved: Saved, like: Any, mesh: Mapping[str, int]
) -> tuple[Any, Resized | None]:
    """The state of a checkpoint, placed as `like` is; resized if it must be.

    It must where the number of workers, the sizes of the mesh's axes, or the number of
    slices of an array are others: row i is then of another worker.
    """
    before, was = saved.metadata["workers"], saved.metadata.get("mesh", mesh)
    slices = _slices_in(saved, like)
    alike = all(slices.get(k, x).parts == x.parts for k, x in slices_of(like).items())
    if before == workers_in(like) and _same_rows(was, mesh) and alike:
        require_same_tree(saved, like)
        require_same_run(saved.metadata["plan"], structure_of(like))
        rows = {k: partial(saved.rows, k) for k in saved}
        return filled(like, rows, saved.loop), None
    try:
        state, report = _resized(saved, slices, before, like, saved.loop)
    except ValueError as error:
        raise ValueError(
            f"restore: the checkpoint is of the mesh {dict(was)}, and this is "
            f"{dict(mesh)}, for which it must be resized. Restore it on the mesh that "
            f"it was saved on, or with what it was saved with: {error}"
        ) from error
    return state, report._replace(meshes=(was, mesh))


def _slices_in(saved: Saved, like: Any) -> Slices:
    """What the checkpoint says of slices; one of an older version says nothing."""
    told = slices_told(saved.metadata)
    if told is None:
        return guessed(saved, saved.metadata["workers"], slices_of(like))
    return told


def _same_rows(was: Mapping[str, int], now: Mapping[str, int]) -> bool:
    """Whether row i is of the same worker: axes as long, and not in another order."""
    before, after = ({k: n for k, n in x.items() if n > 1} for x in (was, now))
    turned = before.keys() == after.keys() and list(before) != list(after)
    return list(before.values()) == list(after.values()) and not turned


def _resized(
    arrays: Mapping[str, np.ndarray],
    slices: Slices,
    before: int,
    like: Any,
    values: Mapping[str, Any],
) -> tuple[Any, Resized]:
    now = workers_in(like)
    merge = merged(arrays, slices, like, now)
    if missing := set(named(like)) - set(merge.arrays) - set(values):
        raise ValueError(f"resize: the old state has no {sorted(missing)[0]!r}")
    if lost := set(values) - set(named(like)):
        raise ValueError(
            f"resize: the checkpoint has {sorted(lost)[0]!r} of the loop, and the "
            "state to restore has not: name it there"
        )
    rows = {k: lambda a, b, x=x: x[a:b] for k, x in merge.arrays.items()}
    return filled(like, rows, values), Resized(before, now, merge.rules)

"""The state of some workers, as the state of others."""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from relaxjax.checkpoint._files import Saved
from relaxjax.checkpoint._merge import merged
from relaxjax.checkpoint._plan import require_same_run, require_same_tree, structure_of
from relaxjax.checkpoint._tree import data_of, filled, is_array, named, workers_in


class Resized(NamedTuple):
    """What a resize has done; prints as a table.

    Attributes:
      before: old number of workers.
      now: new number of workers.
      rules: what became of each array, by its name: "equal", "mean", "sum", "shard",
        "rebuild", "reset" or "own keys".
    """

    before: int
    now: int
    rules: Mapping[str, str]

    def __str__(self) -> str:
        """A line for each rule: how many arrays, and which."""
        lines = [f"{self.before} workers became {self.now}:"]
        for rule in sorted(set(self.rules.values())):
            names = [name for name, other in self.rules.items() if other == rule]
            shown = ", ".join(names[:3]) + (", .." if len(names) > 3 else "")
            lines.append(f"  {rule:8} {len(names):4}  {shown}")
        return "\n".join(lines)


def resized(state: Any, like: Any) -> tuple[Any, Resized]:
    """Worker state as the state of another number of workers.

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
    return _resized(arrays, before, like, leaves)


def restored(saved: Saved, like: Any) -> tuple[Any, Resized | None]:
    """The state of a checkpoint, placed as `like` is; resized if it must be."""
    before = saved.metadata["workers"]
    if before != workers_in(like):
        return _resized(saved, before, like, saved.loop)
    require_same_tree(saved, like)
    require_same_run(saved.metadata["plan"], structure_of(like))
    return filled(like, {k: partial(saved.rows, k) for k in saved}, saved.loop), None


def _resized(
    arrays: Mapping[str, np.ndarray], before: int, like: Any, values: Mapping[str, Any]
) -> tuple[Any, Resized]:
    now = workers_in(like)
    merge = merged(arrays, like, now)
    if missing := set(named(like)) - set(merge.arrays) - set(values):
        raise ValueError(f"resize: the old state has no {sorted(missing)[0]!r}")
    rows = {k: lambda a, b, x=x: x[a:b] for k, x in merge.arrays.items()}
    return filled(like, rows, values), Resized(before, now, merge.rules)

"""The state of some workers, as the state of others."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from relaxjax.checkpoint._merge import Merged, merged
from relaxjax.checkpoint._tree import data_of, filled, is_array, named, workers_in


class Resized(NamedTuple):
    """What a resize has done; prints as a table.

    Attributes:
      before: number of workers.
      now: number of workers.
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
    neighbours are made anew, and counters go on. What becomes of a field is said by the
    mark in its annotation (`relaxjax.checkpoint.MEAN` and others).

    Args:
      state: a tree of arrays [n, ...] of the old workers, all on this process.
      like: the tree of the new workers, [n', ...], as `relaxjax.init` makes it for
        their mesh (and their topology).

    Returns:
      The tree of the new workers, placed as `like` is, and what became of each array.
      Leaves that are no `jax.Array` stay.

    Raises:
      ValueError: a state whose mark forbids it; arrays that should be the same on all
        workers and are not; trees of another model or relaxation.

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
    before, now, leaves = workers_in(state), workers_in(like), named(state)
    rows = {k: np.asarray(data_of(x)) for k, x in leaves.items() if is_array(x)}
    found = merged(rows, like, now)
    return rebuilt(found, like, leaves), Resized(before, now, found.rules)


def rebuilt(found: Merged, like: Any, values: Mapping[str, Any]) -> Any:
    """The tree of the new workers.

    Args:
      found: its arrays.
      like: says where they lie.
      values: of the leaves that are no arrays.

    Raises:
      ValueError: a value is missing.
    """
    missing = set(named(like)) - set(found.arrays) - set(values)
    if missing:
        raise ValueError(f"resize: the old state has no {sorted(missing)[0]!r}")
    arrays = {k: lambda a, b, x=x: x[a:b] for k, x in found.arrays.items()}
    return filled(like, arrays, values)

"""Faults by a table, or by chance and a seed: who is absent, what is lost.

By a table: in round t and place k, table[t mod period, k]. By chance p: where a number
in [0, 1) that is drawn from (seed, t, k) alone is below p, the same under any mapping,
on every worker and in a rerun.

Cost: nothing is sent.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from relaxjax._core._axis import AxisName, axis_size
from relaxjax._core._checks import is_traced, require_known
from relaxjax._core._random import fold, key_words, uniform

_LONG = 2**30  # rounds after which chance repeats


class FaultSchedule(NamedTuple):
    """Yes or no, for each round and place."""

    table: np.ndarray | None  # bool[period, *places]
    chance: float  # probability of a yes, where there is no table
    seed: int

    @property
    def period(self) -> int:
        """Number of rounds after which the schedule repeats."""
        return _LONG if self.table is None else len(self.table)

    def is_always(self, yes: bool) -> bool:
        """Whether every round and place says the same."""
        if self.table is None:
            return self.chance == float(yes)
        return bool((self.table == yes).all())

    def here(self, caller: str, name: str, axis_name: AxisName, round: Any) -> Any:
        """bool[]: whether it happens to this worker, in a table with a column each."""
        n, table = axis_size(axis_name, caller), self.table
        if table is not None and table.shape[1] != n:
            raise ValueError(
                f"{caller}: {name} has {table.shape[1]} columns and the axis has {n} "
                "workers: give one column for each"
            )
        return self.at(round, lax.axis_index(axis_name))

    def at(self, round: jax.Array, *place: int | jax.Array) -> jax.Array:
        """bool[]: whether it happens in a round < `period`, at a worker or a link."""
        if self.table is not None:
            return jnp.asarray(self.table)[(round, *place)]
        words = key_words(self.seed)
        for number in (round, *place):
            words = fold(words, number)
        return uniform(words, 1)[0] < self.chance


def fault_schedule(
    caller: str, name: str, value: Any, places: tuple[int | None, ...], seed: int
) -> FaultSchedule:
    """The schedule that an argument of a method describes, or a ValueError.

    Its value is a table of bools or 0 and 1, [period, *places], where a place of None
    may have any size; or a probability in [0, 1].
    """
    if is_traced(value):
        require_known(caller, name, value)
    table = np.asarray(value)
    if not table.shape and table.dtype.kind in "iuf" and 0 <= table <= 1:
        return FaultSchedule(None, float(table), seed)
    fits = table.ndim == 1 + len(places) and all(
        place in (None, size)
        for place, size in zip(places, table.shape[1:], strict=True)
    )
    if fits and table.size and np.isin(table, (0, 1)).all():
        return FaultSchedule(table.astype(bool), 0.0, seed)
    axes = ", ".join(["period", *(str(p or "workers") for p in places)])
    bad = f"of shape {table.shape}" if table.shape else repr(value)
    raise ValueError(
        f"{caller}: {name}={bad} must be a probability in [0, 1], or a table of 0 and "
        f"1 [{axes}] with a row for each round"
    )

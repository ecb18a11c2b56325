"""What happens by a table, or by chance and a seed: who is absent, what is lost.

By a table: in round t and place k, table[t mod period, k]. By chance p: where a number
in [0, 1) that is drawn from (seed, t, k) alone is below p; the same under every mapping
and on every worker, and no other in a rerun.

Cost: nothing is sent.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from relaxjax._core._random import fold, key_words, uniform

_LONG = 2**30  # rounds after which chance repeats


class FaultSchedule(NamedTuple):
    """Yes or no, for each round and place.

    Attributes:
      table: bool[period, *places], or None.
      chance: of a yes, where there is no table.
      seed: of the draws.
    """

    table: np.ndarray | None
    chance: float
    seed: int

    @property
    def period(self) -> int:
        """Number of rounds after which they repeat."""
        return _LONG if self.table is None else len(self.table)

    def at(self, round: jax.Array, *place: int | jax.Array) -> jax.Array:
        """bool[]: what happens.

        Args:
          round: int32[], 0 .. period - 1.
          *place: of the worker, or of the link.
        """
        if self.table is not None:
            return jnp.asarray(self.table)[(round, *place)]
        words = key_words(self.seed)
        for number in (round, *place):
            words = fold(words, number)
        return uniform(words, 1)[0] < self.chance


def fault_schedule(
    caller: str, name: str, given: Any, places: tuple[int | None, ...], seed: int
) -> FaultSchedule:
    """The table or the chance, if it is one.

    Args:
      caller: the method.
      name: of its argument.
      given: bools or 0 and 1, [period, *places], or a number in [0, 1].
      places: sizes of the table's other axes; None: any.
      seed: of the draws.

    Raises:
      ValueError: it is neither.
    """
    table = np.asarray(given)
    if not table.shape and table.dtype.kind in "iuf" and 0 <= table <= 1:
        return FaultSchedule(None, float(table), seed)
    sizes = [(want, size) for want, size in zip(places, table.shape[1:], strict=False)]
    fits = table.ndim == 1 + len(places) and all(
        want is None or want == size for want, size in sizes
    )
    if fits and table.size and np.isin(table, (0, 1)).all():
        return FaultSchedule(table.astype(bool), 0.0, seed)
    wanted = ", ".join(
        ["period", *("workers" if p is None else str(p) for p in places)]
    )
    what = f"{given!r}" if not table.shape else f"of shape {table.shape}"
    raise ValueError(
        f"{caller}: {name}={what} must be a probability in [0, 1], or a table of 0 and "
        f"1 [{wanted}], of which a row is a round"
    )

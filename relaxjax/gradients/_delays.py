"""Tables of delays, and trees that wait as long as a table says.

At step t what worker i sends is d = delays[t mod period, i] steps under way. Nothing is
lost and nothing arrives twice.

Cost: as many trees as the largest delay.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from relaxjax._core._axis import AxisName, axis_size
from relaxjax._core._checks import require_whole


class Delays(NamedTuple):
    """A table over the workers of an axis.

    Attributes:
      caller: the method.
      axis_name: of the workers.
      table: int[period, workers], 0 or more.
    """

    caller: str
    axis_name: AxisName
    table: np.ndarray

    def nothing(self, tree: Any) -> tuple[Any, ...]:
        """What is under way at the start: zeros like the tree, for 1 .. most steps."""
        most = int(self.table.max())
        return tuple(jax.tree.map(jnp.zeros_like, tree) for _ in range(most))

    def of(self, values: np.ndarray, step: jax.Array) -> jax.Array:
        """This worker's entry of a table of the same shape.

        Raises:
          ValueError: it has not as many columns as there are workers.
          NameError: outside the axis.
        """
        n, columns = axis_size(self.axis_name, self.caller), values.shape[1]
        if columns != n:
            raise ValueError(
                f"{self.caller}: delays have {columns} columns and the axis has {n} "
                "workers: give one column for each"
            )
        return jnp.asarray(values)[step, lax.axis_index(self.axis_name)]

    def passed_on(
        self, arriving: tuple[Any, ...], sent: Any, step: jax.Array
    ) -> tuple[Any, tuple[Any, ...]]:
        """What arrives now, in sum, and what is still under way.

        Args:
          arriving: for each number of steps from 0 up, what arrives then.
          sent: at this step.
          step: int32[], counted around the period.
        """
        late = self.of(self.table, step)
        slots = [*arriving, jax.tree.map(jnp.zeros_like, sent)]
        now, *later = (
            jax.tree.map(lambda a, x, k=k: a + jnp.where(late == k, x, 0), slot, sent)
            for k, slot in enumerate(slots)
        )
        return now, tuple(later)


def delays_of(caller: str, axis_name: AxisName, delays: Any) -> Delays:
    """The table, if it is one.

    Raises:
      ValueError: no whole numbers of 0 or more, [period, workers].
    """
    table = np.asarray(delays)
    if table.ndim != 2 or not table.size or table.dtype.kind not in "iu":
        raise ValueError(
            f"{caller}: delays of shape {table.shape} and dtype {table.dtype} must be "
            "whole numbers [period, workers], such as [[0, 0, 0, 3]]"
        )
    if table.min() < 0:
        raise ValueError(
            f"{caller}: delays hold {table.min()}, and must be 0 or more: nothing "
            "arrives before it is sent"
        )
    return Delays(caller, axis_name, table)


def random_delays(
    workers: int, most: int, *, seed: int = 0, period: int = 64
) -> np.ndarray:
    """A table for `bounded_staleness` and `dc_asgd`, each delay equally likely.

    Args:
      workers: number of columns.
      most: the largest delay, 0 or more.
      seed: of the draws.
      period: number of rows.

    Returns:
      int64[period, workers].

    Raises:
      ValueError: no whole numbers, `workers` or `period` below 1, `most` below 0.

    Example:
      >>> import relaxjax
      >>> print(relaxjax.random_delays(4, 2, period=8).max())
      2
    """
    require_whole("random_delays", "workers", workers)
    require_whole("random_delays", "most", most, 0)
    require_whole("random_delays", "period", period)
    rng = np.random.default_rng(seed)
    return rng.integers(0, most, (period, workers), endpoint=True)

"""Periods as data: stated ones, and rules that are known before training.

A table has rows (t_k, H_k): H_k is the period from step t_k on. So

    post-local SGD (Lin et al. 2020)      (0, 1), (s, H)
    STL-SGD (arXiv:2006.06377)            (t_k, H_k), t_{k+1} = t_k + T c^k, H_k = H f^k

where the learning rate falls at the t_k (STL-SGD halves it, with c = 2, and f = 2 or
its root). A list of periods, one after the other, is a table too: that of a run that
was recorded, to meet at the same steps.

Cost: a comparison with each row, in the steps that ask.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from relaxjax._core._checks import require_whole
from relaxjax.periods._calendar import LONGEST, Schedule

_ROWS = 4096  # of a table, where rows of equal periods are one
_Rows = list[tuple[int, int]]


def table(
    periods: Sequence[int] | Sequence[tuple[int, int]],
) -> Schedule:
    """Periods that are stated.

    Args:
      periods: the periods, one after the other, of which the last one goes on; or pairs
        (step, period), from step 0 on: the period of meetings from that step on. A
        period that has begun before such a step ends as it would have.

    Returns:
      A schedule for `sync_every` or `every`.

    Raises:
      ValueError: no periods; a period below 1; pairs that do not begin at step 0, or
        whose steps do not rise; more than 4096 rows, where equal periods are one.

    Example:
      >>> from relaxjax.periods import meetings, table
      >>> meetings(table([2, 2, 3]), 12)
      [2, 4, 7, 10]
      >>> meetings(table([(0, 1), (3, 4)]), 12)
      [1, 2, 3, 7, 11]
    """
    return _scheduled("periods.table", _rows_of(list(periods)))


def post_local(step: int, sync_every: int) -> Schedule:
    """Lock step at first, and local steps from a step on (post-local SGD).

    The meetings are those of models. `relaxjax.post_local_sgd` averages gradients in
    the first part, so that the optimizer's state is equal on all workers.

    Args:
      step: s, the number of steps of the first part, 0 or more; usually up to the first
        decay of the learning rate.
      sync_every: H, the period of the second part.

    Returns:
      A schedule for `sync_every` or `every`.

    Raises:
      ValueError: `step < 0`, `sync_every < 1`.

    Example:
      >>> from relaxjax.periods import meetings, post_local
      >>> meetings(post_local(2, 16), 40)
      [1, 2, 18, 34]
    """
    require_whole("periods.post_local", "step", step, 0)
    require_whole("periods.post_local", "sync_every", sync_every)
    rows = [(0, 1), (step, sync_every)]
    return _scheduled("periods.post_local", rows if step else rows[1:])


def stages(
    steps: int, sync_every: int, *, stretch: float = 2.0, growth: float = 2.0
) -> Schedule:
    """Stages that become longer, each with longer periods (STL-SGD).

    Args:
      steps: T, the number of steps of the first stage.
      sync_every: H, the period of the first stage.
      stretch: c, by which each stage is longer than the one before; 1 or more.
      growth: f, by which its period is; 1 or more.

    Returns:
      A schedule for `sync_every` or `every`. Whole numbers are the floors of T c^k and
      of H f^k.

    Raises:
      ValueError: `steps` or `sync_every` below 1, `stretch` or `growth` below 1; more
        than 4096 stages until the period is 2^30 steps.

    Example:
      >>> from relaxjax.periods import meetings, stages
      >>> meetings(stages(4, 2), 20)  # 4 steps by 2, 8 steps by 4, 16 steps by 8
      [2, 4, 8, 12, 20]
    """
    caller = "periods.stages"
    require_whole(caller, "steps", steps)
    require_whole(caller, "sync_every", sync_every)
    for name, value in (("stretch", stretch), ("growth", growth)):
        if not value >= 1:
            raise ValueError(f"{caller}: {name}={value} must be 1 or more")
    rows, start = _Rows(), 0
    for k in range(_ROWS):
        period = min(sync_every * growth**k, LONGEST)
        rows.append((start, int(period)))
        if growth == 1 or period == LONGEST or start >= LONGEST:
            break
        start = int(min(start + steps * stretch**k, 2 * LONGEST - 1))
    else:
        raise ValueError(
            f"{caller}: {_ROWS} stages, which is the most, end before a period of 2^30 "
            f"steps: stretch={stretch} or growth={growth} must be larger; or give the "
            "stages that the run has, relaxjax.periods.table([(0, 4), (1000, 5)])"
        )
    return _scheduled(caller, rows)


def _rows_of(periods: list[Any]) -> _Rows:
    """Rows (step, period) of pairs, or of periods one after the other."""
    if all(isinstance(x, tuple | list) and len(x) == 2 for x in periods):
        return [tuple(x) for x in periods]
    for k, period in enumerate(periods):
        require_whole("periods.table", f"periods[{k}]", period)
    starts = itertools.accumulate(periods[:-1], initial=0)
    return list(zip(starts, periods, strict=True))


def _scheduled(caller: str, rows: _Rows) -> Schedule:
    """The schedule of rows (step, period)."""
    if not rows:
        raise ValueError(f"{caller}: there must be one period at least, as in [8]")
    for k, (start, period) in enumerate(rows):
        least = rows[k - 1][0] + 1 if k else 0
        require_whole(caller, f"the step of row {k}, {rows[k]!r},", start, least)
        require_whole(caller, f"the period of row {k}, {rows[k]!r},", period)
    if rows[0][0]:
        raise ValueError(f"{caller}: the first row, {rows[0]}, must begin at step 0")
    kept = [row for k, row in enumerate(rows) if not k or row[1] != rows[k - 1][1]]
    if len(kept) > _ROWS:
        raise ValueError(
            f"{caller}: {len(kept)} rows, where equal periods are one, are more than "
            f"{_ROWS}; state the rule as a function of the step"
        )
    starts, lengths = np.minimum(np.asarray(kept, np.int64), 2 * LONGEST - 1).T

    def scheduled(step: jax.Array | int) -> jax.Array:
        row = jnp.sum(jnp.asarray(starts, jnp.int32) <= step, dtype=jnp.int32) - 1
        return jnp.asarray(lengths, jnp.int32)[row]

    return scheduled

"""L-GreCo: the fewest bytes for an error that stays within that of one rank for all.

Source: Markov et al. 2024 (arXiv:2210.17357). Every so many steps, with the ranks of
each layer l from floor(r / 2) to 2 r, and their sizes c (n + m):

    min  sum_l s_l(c_l)    subject to    sum_l e_l(c_l) <= alpha sum_l e_l(r)

e_l(c) is the norm of what rank c leaves of the layer's matrix M, the mean gradient with
its residual (`rank_errors`). `allocation` finds the ranks.

    error <= the budget,    size <= that of rank r (alpha >= 1)

Where `allocation` finds nothing, or nothing smaller than rank r for all, as where its
fronts are cut, rank r for all is taken.

The authors' program asks every 100 steps, from step 1000 on, with errors of the last
ten steps, and draws Q anew when a rank changes. Here the columns wait
(`relaxjax.power_sgd`).

Cost: that of `allocation`, and a singular value decomposition of each layer.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from relaxjax._core._checks import require_whole
from relaxjax.controllers._allocation import allocation
from relaxjax.controllers._controller import Controller, controller
from relaxjax.controllers._record import Level

_CALLER = "controllers.l_greco"


def l_greco(
    layers: Mapping[str, tuple[int, int]],
    rank: int,
    *,
    alpha: float = 1.0,
    dwell: int = 0,
) -> Controller:
    """Ranks of layers that send least for the error of one rank for all.

    It reads `errors`: by the names of layers, that of each rank from `ranks_of(rank)`,
    floor(rank / 2) to 2 rank, or to the smaller side (`rank_errors`).

    Args:
      layers: (rows, columns) of each leaf's matrix, by name.
      rank: the rank for all, whose error is the budget, and with which it begins.
      alpha: by how much the errors may add up to more than those of `rank`.
      dwell: steps between two changes at least.

    Returns:
      A controller. Its level is one rank for each layer, by name:
      `rank=dict(record.table)` of `relaxjax.power_sgd`.

    Raises:
      ValueError: no layers; `rank < 1`, `alpha <= 0`, `dwell < 0`; in `update` the
        errors of a layer are missing, or not as many as its ranks.

    Example:
      >>> from relaxjax import controllers
      >>> ranks = controllers.l_greco({"w": (8, 8), "v": (80, 80)}, 2)
      >>> read = {"errors": {"w": [9.0, 4.0, 1.0, 0.0], "v": [3.0, 2.5, 2.0, 1.5]}}
      >>> ranks.update(ranks.init(), 100, read).level
      {'w': 3, 'v': 1}
    """
    if not layers:
        raise ValueError(f"{_CALLER}: layers={dict(layers)} must name one or more")
    stacked = {name: (1, *shape) for name, shape in layers.items()}
    return _allocating(lambda told: stacked, ["errors"], rank, alpha, dwell)


def l_greco_of_state(rank: int, *, alpha: float = 1.0, dwell: int = 0) -> Controller:
    """The same for the layers that readings name, as (matrices, rows, columns).

    See `relaxjax.controllers._from_state.errors_of_ranks`.
    """
    return _allocating(
        lambda told: told["layers"], ["errors", "layers"], rank, alpha, dwell
    )


def _allocating(
    layers_of: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    reads: list[str],
    rank: int,
    alpha: float,
    dwell: int,
) -> Controller:
    require_whole(_CALLER, "rank", rank)
    if not alpha > 0:
        raise ValueError(f"{_CALLER}: alpha={alpha} must be more than 0")

    def rule(memory: Any, level: Level, told: Mapping[str, Any]) -> tuple[Any, Level]:
        del level
        layers = layers_of(told)
        ranks = {k: ranks_of(rank, int(min(n, m))) for k, (_, n, m) in layers.items()}
        sizes = [[r * b * (n + m) for r in ranks[k]] for k, (b, n, m) in layers.items()]
        default = [ranks[k].index(min(rank, n, m)) for k, (_, n, m) in layers.items()]
        errors = [_of(told["errors"], name, ranks[name]) for name in layers]
        found = _best(sizes, errors, default, alpha)
        return memory, {k: ranks[k][c] for k, c in zip(layers, found, strict=True)}

    return controller(rule, start=rank, reads=reads, dwell=dwell, caller=_CALLER)


def ranks_of(rank: int, most: int) -> list[int]:
    """The ranks that a layer may take, floor(rank / 2) to 2 rank, `most` at most."""
    return sorted({min(r, most) for r in range(max(1, rank // 2), 2 * rank + 1)})


def _best(sizes: Any, errors: Any, default: list[int], alpha: float) -> list[int]:
    """The allocation; the default where nothing is smaller."""

    def total(rows: Any, places: list[int]) -> float:
        return sum(row[c] for row, c in zip(rows, places, strict=True))

    found = allocation(sizes, errors, alpha * total(errors, default))
    kept = [default] if alpha >= 1 or found is None else []
    return min(
        [*([found] if found else []), *kept], key=functools.partial(total, sizes)
    )


def _of(errors: Mapping[str, Any], name: str, ranks: list[int]) -> list[float]:
    found = errors.get(name, ())
    if len(found) != len(ranks):
        raise ValueError(
            f"{_CALLER}: errors of {name!r} must be those of its ranks {ranks}, and "
            f"are {len(found)}; use relaxjax.controllers.rank_errors"
        )
    return found

"""Readings from the state of a run, on the host, for controllers that have a name.

    norms     of the sums of a period, by leaf             `norms_of_sums`
    whole     the norm of all of them, under the name ""
    errors    that each rank leaves of these sums, by leaf `rank_errors`

Sums are the same on all workers. Errors are those that process 0 finds, so that all
decide alike.

Cost: for errors, a singular value decomposition of each matrix.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from relaxjax._core._arrays import own_names
from relaxjax.controllers._allocation import rank_errors
from relaxjax.controllers._l_greco import ranks_of
from relaxjax.controllers._readings import NormsOfSums, of_first_process


def norms_in(opt_state: Any) -> dict[str, float]:
    """The norms of the last period by the names of leaves; empty: nobody adds up."""
    norms = [x.norms for x in nodes(opt_state, _is_sums)][:1]
    return {name: own_row(x).item() for found in norms for name, x in found.items()}


def whole_norm(opt_state: Any, loss: float) -> dict[str, Any]:
    """The norm of all leaves together, as that of one."""
    norms = norms_in(opt_state).values()
    return {"loss": loss, "norms": {"": math.hypot(*norms)}}


def errors_of_ranks(rank: int, opt_state: Any, loss: float) -> dict[str, Any]:
    """What each rank leaves of the matrices that are sent in low rank."""
    matrices = _matrices(opt_state)
    ranks = {k: ranks_of(rank, min(x.shape[-2:])) for k, x in matrices.items()}
    found = [error for k, x in matrices.items() for error in rank_errors(x, ranks[k])]
    told = iter(of_first_process(found))
    errors = {k: [next(told) for _ in ranks[k]] for k in matrices}
    return {"loss": loss, "errors": errors, "layers": _shapes(matrices)}


def _matrices(opt_state: Any) -> dict[str, np.ndarray]:
    """The sums of leaves that have a factor Q, [batch, n, m]."""
    sums = nodes(opt_state, _is_sums)[0].total
    sums = dict(zip(own_names(sums), map(own_row, jax.tree.leaves(sums)), strict=True))
    right = nodes(opt_state, _has_factors)[0].right
    factors = zip(own_names(right), map(own_row, jax.tree.leaves(right)), strict=True)
    return {
        name: sums[name].reshape(len(q), -1, q.shape[1])
        for name, q in factors
        if q.ndim == 3
    }


def _shapes(matrices: Mapping[str, np.ndarray]) -> dict[str, list[int]]:
    return {name: [*x.shape] for name, x in matrices.items()}


def _is_sums(x: Any) -> bool:
    return isinstance(x, NormsOfSums)


def _has_factors(x: Any) -> bool:
    return hasattr(x, "right") and hasattr(x, "residual")


def nodes(opt_state: Any, wanted: Callable[[Any], bool]) -> list[Any]:
    """The states in a state that are wanted."""
    return [x for x in jax.tree.leaves(opt_state, is_leaf=wanted) if wanted(x)]


def own_row(x: jax.Array) -> np.ndarray:
    """One worker's row, where all have the same."""
    return np.asarray(x.addressable_data(0))[0]

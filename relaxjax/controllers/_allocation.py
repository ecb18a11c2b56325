"""The choices of least size within a sum of errors, by a dynamic program.

Source: Markov et al. 2024 (arXiv:2210.17357, L-GreCo). Layer l has choices c of sizes
s_l and errors e_l:

    min  sum_l s_l(c_l)    subject to    sum_l e_l(c_l) <= budget

It is a knapsack. Of the choices of the first l layers only those pairs (error, size)
are kept that no other is below in both:

    F_l = the front of {(e + e_l(c), s + s_l(c)):  (e, s) in F_{l-1}, c}

The authors' program counts errors in 10 000 buckets, rounded up, so that a choice which
just fits may not fit any more. Here errors are exact. A front of more than 10 000 pairs
keeps the smallest size of each 10 000th of the budget.

    sum of errors <= the budget (within 1e-12 of it);  least size, where nothing is cut

Cost: O(layers choices 10 000), times a logarithm.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

MOST = 10_000  # pairs


class _Front(NamedTuple):
    """Pairs, by rising errors and falling sizes, and where each came from."""

    errors: np.ndarray
    sizes: np.ndarray
    before: np.ndarray  # the place of a pair in the front of one layer less
    choice: np.ndarray  # of the last layer


def allocation(
    sizes: Sequence[Sequence[float]], errors: Sequence[Sequence[float]], budget: float
) -> list[int] | None:
    """The choice of each layer whose sizes add up to least, within a sum of errors.

    Args:
      sizes: of each layer, the size of each of its choices.
      errors: of each layer, the error of each of its choices, 0 or more.
      budget: what the chosen errors may add up to.

    Returns:
      The place of each layer's choice; None where nothing fits.

    Raises:
      ValueError: layers or choices are not as many, or an error or the budget is
        negative or not a number.

    Example:
      >>> from relaxjax.controllers import allocation
      >>> sizes = [(8, 4, 2), (80, 40, 20), (8, 4, 2)]
      >>> allocation(sizes, [(0, 4, 9), (0, 1, 3), (0, 1, 6)], 5)
      [0, 2, 1]
    """
    _check(sizes, errors, budget)
    nothing, none = np.zeros(1), np.zeros(1, int)
    fronts = [_Front(nothing, nothing, none, none)]
    for row, lost in zip(sizes, errors, strict=True):
        fronts.append(
            _with_layer(fronts[-1], np.asarray(row), np.asarray(lost), budget)
        )
    if not len(fronts[-1].sizes):
        return None
    place, found = len(fronts[-1].sizes) - 1, []
    for front in fronts[:0:-1]:
        found.append(int(front.choice[place]))
        place = front.before[place]
    return found[::-1]


def _with_layer(
    front: _Front, sizes: np.ndarray, errors: np.ndarray, budget: float
) -> _Front:
    """The front of one layer more."""
    before, choice = np.indices((len(front.sizes), len(sizes))).reshape(2, -1)
    error = front.errors[before] + errors[choice]
    size = front.sizes[before] + sizes[choice]
    order = np.lexsort((size, error))
    order = order[error[order] <= budget * (1 + 1e-12)]
    least = np.minimum.accumulate(np.append(np.inf, size[order]))
    order = order[size[order] < least[:-1]]
    if len(order) > MOST:
        part = np.floor(error[order] / budget * MOST)
        order = order[np.append(part[1:] != part[:-1], True)]  # the last has least size
    return _Front(error[order], size[order], before[order], choice[order])


def _check(sizes: Any, errors: Any, budget: float) -> None:
    if (
        not sizes
        or [*map(len, sizes)] != [*map(len, errors)]
        or not all(map(len, sizes))
    ):
        raise ValueError(
            "controllers.allocation: sizes and errors must be of one layer or more, "
            "with as many choices, one at least"
        )
    for name, value in (("budget", budget), *(("errors", e) for e in errors)):
        if not (np.isfinite(value).all() and np.min(value) >= 0):
            raise ValueError(
                f"controllers.allocation: {name}={value} must be 0 or more"
            )


def rank_errors(matrix: Any, ranks: Sequence[int]) -> list[float]:
    """The Frobenius norm of what the best approximation of each rank leaves.

    Args:
      matrix: float[n, m], or [batch, n, m], whose squared errors add up.
      ranks: the ranks.

    Returns:
      The errors, in the matrix's unit.

    Example:
      >>> import numpy as np
      >>> from relaxjax.controllers import rank_errors
      >>> rank_errors(np.diag([4.0, 3.0, 4.0]), [0, 2, 3])[1:]
      [3.0, 0.0]
    """
    sigma = np.linalg.svd(np.asarray(matrix, np.float64), compute_uv=False)
    return [float(np.sqrt(np.sum(sigma[..., r:] ** 2))) for r in ranks]

"""Weights that a topology may have, and errors for all others."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from relaxjax.topology._links import TOLERANCE, Links, of_matrix, rounds_of
from relaxjax.topology._topology import Topology


def checked_matrices(name: str, matrices: Any, *, rows: bool = True) -> Topology:
    """`checked`, of a matrix, [n, n], or of several.

    Raises:
      ValueError: a matrix is not square, or not of the size of the first; what
        `checked` refuses.
    """
    arrays = rounds_of(name, matrices)
    return checked(name, len(arrays[0]), [of_matrix(w) for w in arrays], rows=rows)


def checked(
    name: str, n: int, rounds: Sequence[Links], *, rows: bool = True
) -> Topology:
    """A topology of n workers and checked rounds, one or more.

    Raises:
      ValueError: there is no worker; a weight is not finite or negative; a column, or
        with `rows` a row, does not sum to 1.
    """
    for links in rounds:
        bad = links.weights[~(np.isfinite(links.weights) & (links.weights >= 0))]
        if bad.size or not n:
            why = f"it holds {bad[0]}" if bad.size else "it is empty"
            raise ValueError(f"{name}: weights must be finite and 0 or more; {why}")
        if rows:
            _require_sums(name, links.row_sums(n), "row", "equal values as they are")
        _require_sums(name, links.column_sums(n), "column", "the workers' mean")
    return Topology(name, n, tuple(rounds))


def _require_sums(name: str, sums: np.ndarray, kind: str, keeps: str) -> None:
    worst = int(np.abs(sums - 1).argmax())
    if abs(off := sums[worst] - 1) > TOLERANCE:
        raise ValueError(
            f"{name}: {kind} {worst} of the matrix sums to {sums[worst]:.6g}, off by "
            f"{off:+.3g}; {kind}s that sum to 1 keep {keeps}. For undirected graphs, "
            "relaxjax.topology.metropolis(links) makes such weights"
        )

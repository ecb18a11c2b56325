"""Weights that a topology may have, and errors for all others."""

from collections.abc import Sequence

import numpy as np

from relaxjax.topology._topology import TOLERANCE, Topology


def checked(
    name: str, matrices: Sequence[np.ndarray], *, rows: bool = True
) -> Topology:
    """A topology of checked matrices, [n, n] each, one or more.

    Raises:
      ValueError: a matrix is not square, not of the size of the first, not finite or
        negative somewhere; a column, or with `rows` a row, does not sum to 1.
    """
    arrays = [np.asarray(w, np.float64) for w in matrices]
    for w in arrays:
        if w.ndim != 2 or w.shape != (w.shape[0],) * 2 or w.shape != arrays[0].shape:
            raise ValueError(
                f"{name}: the shape {w.shape} of a matrix must be (n, n), the same in "
                "every round"
            )
        bad = w[~(np.isfinite(w) & (w >= 0))]
        if bad.size or not w.size:
            why = f"it holds {bad[0]}" if bad.size else "it is empty"
            raise ValueError(f"{name}: weights must be finite and 0 or more; {why}")
        if rows:
            _require_sums(name, w.sum(axis=1), "row", "equal values as they are")
        _require_sums(name, w.sum(axis=0), "column", "the workers' mean")
    return Topology(name, np.stack(arrays))


def _require_sums(name: str, sums: np.ndarray, kind: str, keeps: str) -> None:
    worst = int(np.abs(sums - 1).argmax())
    if abs(off := sums[worst] - 1) > TOLERANCE:
        raise ValueError(
            f"{name}: {kind} {worst} of the matrix sums to {sums[worst]:.6g}, off by "
            f"{off:+.3g}; {kind}s that sum to 1 keep {keeps}. For undirected graphs, "
            "relaxjax.topology.metropolis(links) makes such weights"
        )

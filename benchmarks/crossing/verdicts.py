"""What one cell comes to.

    equal      the models of all workers, after each step, are those made by hand
    warned     relaxjax warned by name; `apart` says how far the models are
    refused    relaxjax refused by name
    wrong      they are not those made by hand, and nothing was said
    broken     another error than relaxjax's own

Only the first three may occur. `apart` is the largest distance of any parameter from
the one made by hand, less what float32 rounds in it, over the largest way that any
parameter went. A parameter is rounded some eight times in the six steps.
"""

import traceback
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import relaxjax
from benchmarks.crossing.hands import Hand, Models
from benchmarks.crossing.inventory import ROWS
from benchmarks.crossing.places import PLACES, right
from benchmarks.crossing.task import start

ROUNDINGS = 8 * 2.0**-24
SILENT = ("wrong", "broken")
"""Verdicts that no cell may have."""
_PACKAGE = str(Path(relaxjax.__file__).parent)


class Cell(NamedTuple):
    """A verdict.

    Attributes:
      verdict: equal, warned, refused, wrong or broken.
      words: what relaxjax said, or the error.
      apart: see the module; None where nothing ran.
    """

    verdict: str
    words: str
    apart: float | None


def cell(name: str, place: str, hand: Hand | None = None) -> Cell:
    """Runs a row of the inventory in a place."""
    row = ROWS[name]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            models = PLACES[place](row)
        except Exception as error:
            verdict = "refused" if is_ours(error) else "broken"
            return Cell(verdict, f"{type(error).__name__}: {error}", None)
    said = [str(w.message) for w in caught if is_said(str(w.message))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        apart = distance(models, right(hand or Hand(row), place))
    if said:
        return Cell("warned", said[0], apart)
    return Cell("equal" if apart <= row.tolerance else "wrong", "", apart)


def distance(models: Models, by_hand: Models) -> float:
    """The largest distance, over the largest way."""
    first = jax.tree.map(np.asarray, start())

    def largest(pairs: Any) -> float:
        gaps = [
            np.max(np.abs(x - y))
            for a, b in pairs
            for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
        ]
        return float(np.max(gaps))

    flat = [model for step in models for model in step]
    right = [model for step in by_hand for model in step]
    zero = jax.tree.map(np.zeros_like, first)
    way = largest([(model, first) for model in right])
    rounded = ROUNDINGS * largest([(model, zero) for model in right])
    gap = max(0.0, largest(zip(flat, right, strict=True)) - rounded)
    return gap / way if way else gap


def is_ours(error: Exception) -> bool:
    """Whether a line of relaxjax raised it by itself."""
    frames = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    return bool(frames) and frames[-1].startswith(_PACKAGE)


def is_said(words: str) -> bool:
    """Whether it names a function of relaxjax first."""
    first = words.split(":")[0].split("(")[0]
    return first in {"init", "data_parallel", *relaxjax.__all__} or "relaxjax" in words

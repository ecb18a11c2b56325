"""An input of a compressor, what came back, and how far chance may take it."""

from typing import Any, NamedTuple

import numpy as np

from relaxjax.check._samples import squared
from relaxjax.check._verdict import Counterexample, spelled

DEVIATIONS = 5  # of a mean, that chance is given
_TINY = float(np.finfo(np.float32).tiny)  # where float32 flushes what is smaller


class Case(NamedTuple):
    """An input, and what came back.

    Attributes:
      input: its name.
      x: float32[d].
      out: float64[draws, d].
    """

    input: str
    x: np.ndarray
    out: np.ndarray

    @property
    def size(self) -> int:
        """Number of elements d."""
        return self.x.size

    @property
    def flushed(self) -> float:
        """The square of what float32 may lose of numbers too small for it."""
        return self.size * _TINY**2

    @property
    def slack(self) -> float:
        """What chance and rounding may add to the mean squared error."""
        chance = DEVIATIONS * self.errors.std() / np.sqrt(len(self.out))
        return chance + 2.0**-44 * squared(self.x) + self.flushed

    @property
    def errors(self) -> np.ndarray:
        """Squared error of each draw."""
        return squared(self.out - self.x)

    def against(self, expected: str, seen: str) -> Counterexample:
        """This case as a counterexample."""
        where: dict[str, Any] = {"input": self.input, "size": self.size}
        where |= {"seed": 0, "draws": len(self.out)}
        if self.size <= 8:
            where["x"] = spelled(self.x)
        return Counterexample(where, expected, seen)

"""How large a number may be that a user or a file gives: one range for each kind.

A number beyond its range is a slip, and would take all memory or all day before a word
is said. What is inside has an answer within seconds.
"""

import math
from typing import Any, NamedTuple


class Range(NamedTuple):
    """Numbers from `least` to `most`, both among them.

    Example:
      >>> from relaxjax._core.foreign._ranges import WORKERS
      >>> 8 in WORKERS, 0 in WORKERS, WORKERS.rule
      (True, False, 'from 1 to 65536')
    """

    least: float
    most: float

    def __contains__(self, number: Any) -> bool:
        """Whether a number is inside; NaN never is."""
        return bool(self.least <= number <= self.most)

    @property
    def rule(self) -> str:
        """The range in words."""
        if self.most == math.inf:
            return f"{self.least:.12g} or more"
        return f"from {self.least:.12g} to {self.most:.12g}"


WORKERS = Range(1, 2**16)
"""Of a mesh, an emulation, a plan, a study; devices of a compiled program."""
EXPLAINED = Range(1, 2**7)
"""Workers of a program that is traced to be explained: it names each link."""
PARAMS = Range(1, 10**13)
STEPS = Range(1, 2**31 - 1)
SEED = Range(0, 2**32 - 1)  # JAX takes 32 bits of a seed
SEEDS = Range(1, 1000)
"""Runs of each method of a study."""
TUNED = Range(1, 50)
"""Learning rates, a factor of 3 apart: 3^50 is near the end of float32."""
SECONDS = Range(0, 1e9)
"""Thirty years."""
RATE = Range(1e-9, math.inf)
"""Bytes, operations and the like per second."""
BYTES = Range(0, 2**60)
MEBIBYTES = Range(2**-20, 2**20)
"""Of a bucket."""
PROCESSES = Range(1, 1024)
"""That one command starts, and emulated devices of each."""

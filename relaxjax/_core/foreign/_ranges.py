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
      (True, False, 'from 1 to 131072')
    """

    least: float
    most: float

    def __contains__(self, number: Any) -> bool:
        """Whether a number is inside; NaN never is."""
        return bool(self.least <= number <= self.most)

    @property
    def rule(self) -> str:
        """The range in words."""
        return f"from {self.least:.13g} to {self.most:.13g}"

    def broken(self, number: Any) -> str:
        """Which end a number is beyond, as a rule in words; "" if it is inside."""
        if number in self:
            return ""
        if number > self.most:
            return f"{self.most:.13g} or less"
        return f"{self.least:.13g} or more"


WHOLE = Range(1, math.inf)
WORKERS = Range(1, 2**17)
"""Of a mesh, an emulation, a topology, a plan, a study; devices of a program."""
ALL_PAIRS = Range(1, 2**12)
"""Workers of a topology in which each talks to all."""
EXPLAINED = Range(1, 2**7)
"""Workers of a program that is traced to be explained: it names each link."""
PARAMS = Range(1, 10**12)
STEPS = Range(1, 2**31 - 1)
"""And rows of a batch."""
DRAWS = Range(1, 10**5)
"""Random orders; draws of a random compressor."""
SEED = Range(0, 2**32 - 1)  # JAX takes 32 bits of a seed
SEEDS = Range(1, 1000)
"""Runs of each method of a study."""
TUNED = Range(1, 50)
"""Learning rates, a factor of 3 apart: 3^50 is near the end of float32."""
SECONDS = Range(0, 1e9)
"""Thirty years."""
PREDICTED = Range(0, 1e100)
"""Seconds that follow from other figures."""
RATE = Range(1e-9, math.inf)
"""Bytes, operations and the like per second."""
HARDWARE = Range(1e-9, 1e12)
"""Gbit/s, GB/s and MiB of links and codecs, where they are finite."""
LINK = Range(1, 1e15)
"""Bytes per second of a shaped link."""
BYTES = Range(0, 2**80)
MEBIBYTES = Range(2**-20, 2**12)
"""Of a bucket."""
PROCESSES = Range(1, 1024)
"""That one command starts, and emulated devices of each."""

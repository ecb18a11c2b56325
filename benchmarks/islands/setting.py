"""What the processes of a run are told: one file of JSON in its folder."""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = "RELAXJAX_CHAOS"
"""The environment variable that names the folder."""


class Setting(NamedTuple):
    """A run.

    Attributes:
      islands: number of processes.
      pace: steps per second of each.
      slow: what the last one's pace is multiplied by.
      rows: rows of a batch; tokens are rows here.
      sync_every: H.
      fragments: P.
      grace: seconds that a merge with its quorum waits.
      lost_after: seconds without a sign after which a process counts as lost.
      poll: seconds between two looks at the folder.
      rate: learning rate of each process's SGD.
      width: of the perceptron's hidden layers.
      seed: of the model, the batches and the kills.
      carrier: "folder" or "ray".
      spares: whether processes that have imported JAX stand by.
      merge: "mean", "rda", or a rule of `relaxjax.merges` as text: "trimmed:b=1".
      limit: most times the median that a contribution may be long; None for any.
      cap: the root of most times the median that one may weigh; None for any.
      has_wrong: whether the last one is wrong (`benchmarks.islands.wrong_ways`).
    """

    islands: int
    pace: float
    slow: float
    rows: int
    sync_every: int
    fragments: int
    grace: float
    lost_after: float
    poll: float
    rate: float
    width: int
    seed: int
    carrier: str = "folder"
    spares: bool = False
    merge: str = "rda"
    limit: float | None = 10.0
    cap: float | None = 2.0
    has_wrong: bool = False

    @classmethod
    def read(cls) -> tuple["Setting", Path]:
        """The setting of the run that this process belongs to, and its folder."""
        folder = Path(os.environ[FOLDER])
        return cls(**json.loads((folder / "setting.json").read_text())), folder

    def write(self, folder: Path) -> None:
        """Puts it where the processes find it."""
        (folder / "setting.json").write_text(json.dumps(self._asdict()))

    def pace_of(self, number: int) -> float:
        """Steps per second of one process."""
        return self.pace * (self.slow if number == self.islands - 1 else 1.0)

    @property
    def every(self) -> int:
        """Steps from one merge to the next, which is of another fragment."""
        return self.sync_every // self.fragments

    @property
    def tokens_per_second(self) -> float:
        """What all processes take in together, if nothing ever fails."""
        return sum(self.pace_of(i) for i in range(self.islands)) * self.rows

    def rule(self) -> Any:
        """The rule of a merge, or its word."""
        from relaxjax import merges

        return merges.spelled(self.merge)

    def outer(self) -> Any:
        """The outer optimizer of JAX's; processes without JAX do not ask for it."""
        import optax

        return optax.sgd(0.7, momentum=0.9, nesterov=True)

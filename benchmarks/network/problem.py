"""What every system of the network bench trains: one model, one start, one text.

The task is `relaxjax.tasks.chars` at the width and depth that give 3,241,600
parameters in 54 arrays. A problem is plain arrays, so that a process that knows nothing
of JAX reads it from a file.
"""

from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from relaxjax._core._tree import leaf_names
from relaxjax.tasks import Task, chars
from relaxjax.tasks._chars import CONTEXT, encode, source_files, split_files

WIDTH, LAYERS, HEADS, HOSTS = 256, 4, 4, 4
ROWS = 8  # of each process, in each step
_SEED = 0


class Shape(NamedTuple):
    """Width and layers of the model, and the number of hosts."""

    width: int = WIDTH
    layers: int = LAYERS
    hosts: int = HOSTS


class Problem(NamedTuple):
    """A start and data.

    Attributes:
      params: the model's start, by name of the leaf.
      batches: uint8[steps, rows, characters + 1], of all processes together.
      windows: uint8[windows, characters + 1], held out.
    """

    params: dict[str, np.ndarray]
    batches: np.ndarray
    windows: np.ndarray

    def save(self, path: Path) -> None:
        """Writes one file of arrays."""
        rest = {"batches": self.batches, "windows": self.windows}
        named = {f"params:{name}": x for name, x in self.params.items()}
        np.savez(path, allow_pickle=False, **rest, **named)

    def size(self) -> tuple[int, int]:
        """Width and layers of the model."""
        blocks = {n.split("/")[1] for n in self.params if n.startswith("blocks/")}
        return len(self.params["norm/scale"]), len(blocks)

    @classmethod
    def load(cls, path: Path) -> "Problem":
        """Reads what `save` has written."""
        with np.load(path) as file:
            named = {name: file[name] for name in file.files}
        batches, windows = named.pop("batches"), named.pop("windows")
        params = {name.removeprefix("params:"): x for name, x in named.items()}
        return cls(params, batches, windows)

    def own_rows(self, step: int, process: int, processes: int) -> np.ndarray:
        """The rows of one process in a step; after the last batch comes the first."""
        batch = self.batches[step % len(self.batches)]
        return np.array_split(batch, processes)[process]

    def own_windows(self, process: int, processes: int) -> np.ndarray:
        """The held-out windows that one process judges."""
        return np.array_split(self.windows, processes)[process]


def task(width: int = WIDTH, layers: int = LAYERS) -> Task:
    """The task in JAX, at its start: a transformer of this width and depth."""
    return chars(_SEED, width=width, layers=layers)


def problem(
    start: Task, *, processes: int, steps: int, windows: int, rows: int = ROWS
) -> Problem:
    """Draws batches and windows, and takes the start from the task.

    Args:
      start: the task.
      processes: number of processes that share a batch.
      steps: number of batches that are drawn.
      windows: number of windows that are held out.
      rows: rows of each process.
    """
    drawn = start.batches(_SEED, rows * processes)
    leaves = map(np.asarray, jax.tree.leaves(start.params))
    return Problem(
        dict(zip(leaf_names(start.params), leaves, strict=True)),
        np.stack([next(drawn) for _ in range(steps)]),
        _held_out(windows),
    )


def _held_out(count: int) -> np.ndarray:
    """Stretches of the held-out text, evenly spaced."""
    _, files = split_files(source_files())
    text = encode(files)
    starts = np.linspace(0, len(text) - CONTEXT - 1, count).astype(int)
    return text[starts[:, None] + np.arange(CONTEXT + 1)]

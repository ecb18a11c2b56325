"""What a relaxation is, as a row of a table; and what its optimizer is told."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import optax

SYNC_EVERY = 8  # steps from one synchronisation to the next, if the options do not say


class Training(NamedTuple):
    """What a relaxation works with.

    Attributes:
      optimizer: its parent, as without a relaxation.
      learning_rate: of that optimizer, for relaxations that are optimizers themselves.
      steps: that it takes, of which phases are parts.
      workers: how many there are.
      order: leaf names in the order of transfers, for rows that are `ordered`; None is
        their own.
    """

    optimizer: optax.GradientTransformation
    learning_rate: optax.ScalarOrSchedule
    steps: int
    workers: int
    order: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Relaxation:
    """A row of the table.

    Attributes:
      name: as it is spelled on the command line.
      summary: one line for people.
      build: `build(axis_name, training, **parts)` puts its own transformation before,
        after or around the optimizer, or in its place.
      algorithms: valid values of its part `algorithm` (for gossip, the topology); none
        means it takes no such part.
      compressors: whether it takes the part `compressor`.
      options: names of further parts, numbers such as `bucket_bytes`.
      parent: which optimizer it is made for: a key of `relaxjax.tasks.OPTIMIZERS`.
      period: number of steps after which its communication repeats, of which the option
        `sync_every` says another; None: it does not, as it has phases, or graphs that
        take turns.
      ordered: whether its transfers keep to `Training.order`.
      apart: whether the workers' models may differ after a step.
    """

    name: str
    summary: str
    build: Callable[..., optax.GradientTransformationExtraArgs]
    algorithms: tuple[str, ...] = ()
    compressors: bool = False
    options: frozenset[str] = frozenset()
    parent: str = "adamw"
    period: int | None = 1
    ordered: bool = False
    apart: bool = False

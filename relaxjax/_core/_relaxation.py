"""A relaxation as a row of the table, and what its builder is given."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import optax

SYNC_EVERY = 8  # steps from one synchronization to the next, unless the options differ


class Training(NamedTuple):
    """The training run that a relaxation is built for.

    Attributes:
      optimizer: its parent, the same as without a relaxation.
      learning_rate: that optimizer's, for relaxations that are optimizers themselves.
      steps: the length of the run, of which phases are parts.
      workers: the number of workers.
      order: leaf names in the order of transfers, for rows that are `ordered`; None is
        the row's own order.
    """

    optimizer: optax.GradientTransformation
    learning_rate: optax.ScalarOrSchedule
    steps: int
    workers: int
    order: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Sends:
    """What a relaxation sends, as plain data, so that `relaxjax.plan` can rank it.

    A row that states nothing is ranked by the bytes of its traced program.

    Attributes:
      kind: "gradients" of every step, each bucket once it is computed; "models" once a
        period; "neighbors", models over a graph; "low_rank", products of matrices,
        "low_rank_by_turns", one factor of them a step;
        "traced", one message after the backward pass, of the bytes of the program.
      line: the expression that makes the relaxation from `optimizer`; `{args}` stands
        for the axis and what follows it; "" where it has to be built by hand.
      why: what it does about the network, in a phrase; may hold `{every}` (steps) and
        `{neighbors}`. "" is the row's summary.
      algorithm: how gradients and models are averaged; for neighbors, the topology.
      early: whether what it sends was there before the step.
      variants: whether plans also try its algorithms, compressors and periods.
      grows: whether its program has instructions for each worker, so that plans know
        it up to 64 workers alone.
    """

    kind: Literal[
        "gradients", "models", "neighbors", "low_rank", "low_rank_by_turns", "traced"
    ] = "traced"
    line: str = ""
    why: str = ""
    algorithm: str = "psum"
    early: bool = False
    variants: bool = False
    grows: bool = False


@dataclass(frozen=True, kw_only=True)
class Relaxation:
    """A row of the table.

    Attributes:
      name: its name on the command line.
      summary: one line for people.
      build: `build(axis_name, training, **parts)` puts its own transformation before,
        after or around the optimizer, or in its place.
      algorithms: valid values of its part `algorithm` (for gossip, the topology); empty
        if it takes no such part.
      compressors: whether it takes the part `compressor`.
      options: names of further parts, numbers such as `bucket_bytes`.
      parent: the optimizer it is made for, a key of `relaxjax.tasks.OPTIMIZERS`.
      period: number of steps after which its communication repeats, unless the option
        `sync_every` says otherwise; None: it never does, because it has phases, or
        graphs that take turns.
      ordered: whether its transfers keep to `Training.order`.
      apart: whether the workers' models may differ after a step.
      sends: one exchange, for plans.
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
    sends: Sends = Sends()

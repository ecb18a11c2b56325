"""Local steps and outer optimizers beside all-reduce, on characters, equal samples.

What a row shows is mathematics: bits per character of the consensus model, and bytes of
the whole run, of workers in lock step. Every method has the batches, the steps, the
optimizer and the schedule of its parent.
"""

from collections.abc import Sequence
from typing import Any

from relaxjax._mesh import emulate
from relaxjax.bench._methods import Entry, methods

TARGET = 0.02
_SLOW = {"outer_learning_rate": 1.0, "outer_momentum": 0.3}
_LATE = {"outer_learning_rate": 0.5, "outer_momentum": 0.0}
ENTRIES = (
    Entry("local_sgd", {"sync_every": 10}),
    Entry("local_sgd", {"sync_every": 30}),
    Entry("local_sgd", {"sync_every": 10}, mesh=emulate(2)),
    Entry("local_sgd", {"sync_every": 10}, mesh=emulate(16)),
    Entry("diloco", {"sync_every": 10, **_SLOW}),
    Entry("diloco", {"sync_every": 30, **_SLOW}),
    Entry("diloco+quantize4+ef14", {"sync_every": 15, **_SLOW}),
    Entry("streaming_diloco", {"sync_every": 10, "overlap": 1, **_SLOW}),
    Entry("eager_diloco", {"sync_every": 10, **_LATE}),
    Entry("sparse_loco", {"sync_every": 15}),
    Entry("muloco", {"sync_every": 10, **_SLOW}),
    Entry("local_sgd", {"sync_every": 10}, optimizer="momentum"),
    Entry("diloco", {"sync_every": 30, **_SLOW}, optimizer="momentum"),
    Entry("diloco+sign+ef14", {"sync_every": 15, **_SLOW}, optimizer="momentum"),
)


def later(
    *,
    entries: Sequence[Entry] = ENTRIES,
    steps: int | None = None,
    seeds: int = 1,
    out: str = "runs/bench",
) -> dict[str, Any]:
    """Trains with every method, and with every parent after an all-reduce.

    Args:
      entries: what is compared.
      steps: of each run; None means 600.
      seeds: number of runs of each.
      out: folder for the JSON.

    Returns:
      What was measured, as saved.
    """
    return methods(
        tasks=["chars"],
        entries=entries,
        steps=steps,
        seeds=seeds,
        target=TARGET,
        name="later",
        out=out,
    )

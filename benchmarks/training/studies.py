"""The studies of training, as data: tasks, relaxations after an optimizer, targets.

A relaxation is spelled as in `relaxjax compare`, and is compared with the all-reduce
after the same optimizer; both have their learning rates tuned by `relaxjax.compare`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from relaxjax.plan import Network, quality_of
from relaxjax.plan._candidates import candidates
from relaxjax.plan._quality import bare
from relaxjax.tasks import TASKS, Task, chars, digits

WORKERS = 8


class Table(NamedTuple):
    """A study.

    Attributes:
      tasks: functions from a seed to a task, by name.
      relaxations: by the name of their optimizer (`relaxjax.tasks.OPTIMIZERS`).
      steps: steps of a run.
      budgets: by how many times fewer bytes than a float32 ring are sent, how much
        worse the test metric may be, relative.
    """

    tasks: Mapping[str, Callable[[int], Task]]
    relaxations: Mapping[str, Sequence[str]]
    steps: int = 600
    budgets: Mapping[int, float] = {}


def small_chars(seed: int) -> Task:
    """The characters for a model of 23 136 parameters."""
    return chars(seed, width=32, layers=1)


_MEAN = "outer_learning_rate=1 outer_momentum=0"
_SLOW = "outer_learning_rate=1 outer_momentum=0.3"

QUALITY = Table(
    {"digits": digits, "chars": small_chars},
    {
        "adamw": (
            "power_sgd rank=4 bits=8",
            "power_sgd rank=1 bits=8",
            "all_reduce+sign+ef14",
            "all_reduce+top_k+ef14",
            "local_sgd+quantize4+ef14 sync_every=5",
            "local_sgd+quantize4+ef14 sync_every=15",
            "local_sgd+quantize4+ef14 sync_every=60",
            f"diloco+quantize4+ef14 sync_every=15 {_SLOW}",
            f"diloco+sign+ef14 sync_every=6 {_MEAN}",
            f"diloco+sign+ef14 sync_every=24 {_MEAN}",
            "sparse_loco sync_every=3",
            "sparse_loco sync_every=12",
        ),
    },
    budgets={32: 0.01, 100: 0.01, 400: 0.02},
)
SCREENED = Table(
    {"digits": digits},
    {
        "adamw": (
            "all_reduce+quantize4+ef14",
            "all_reduce+sign+ef14",
            "all_reduce+top_k+ef14",
            "power_sgd rank=8",
            "power_sgd rank=4 bits=8",
            "power_sgd rank=1 bits=8",
            "acp_sgd rank=8",
            "acp_sgd rank=4 bits=8",
            "acp_sgd rank=1 bits=8",
            "one_bit_adam+quantize4+ef14",
            "local_sgd+quantize4+ef14 sync_every=5",
            "local_sgd+quantize4+ef14 sync_every=15",
            "local_sgd+quantize4+ef14 sync_every=60",
            "desynced",
            "desynced+quantize4+ef14",
            f"diloco+quantize4+ef14 sync_every=15 {_SLOW}",
            f"diloco+sign+ef14 sync_every=24 {_MEAN}",
            f"decoupled_diloco+quantize4+ef14 sync_every=16 {_SLOW}",
            "sparse_loco sync_every=3",
            "sparse_loco sync_every=12",
            "sparta share=0.1",
            "sparta share=0.01",
            "sparta share=0.0025",
        ),
        "momentum": ("deep_gradient_compression density=0.01 warmup_steps=30",),
    },
    budgets={8: 0.01, 32: 0.01, 100: 0.01, 400: 0.02},
)
FRONTIER = Table(
    {"chars": small_chars},
    {
        "adamw": (
            "acp_sgd rank=8",
            "acp_sgd rank=4 bits=8",
            "power_sgd rank=8",
            "power_sgd rank=4 bits=8",
            "power_sgd rank=4",
            "all_reduce+quantize4+ef14",
            "local_sgd+quantize4+ef14 sync_every=15",
            "local_sgd sync_every=15",
            "local_sgd+quantize4+ef14 sync_every=5",
            "desynced",
            "sparta share=0.1",
            "sparta share=0.01",
            f"decoupled_diloco+quantize4+ef14 sync_every=16 {_SLOW}",
            "sparse_loco sync_every=3",
            "local_sgd+quantize4+ef14 sync_every=60",
            f"diloco+sign+ef14 sync_every=24 {_MEAN}",
        ),
    },
    steps=1000,
    budgets={8: 0.01, 32: 0.01, 100: 0.01, 400: 0.02},
)
RECENT = Table(
    {"digits": digits, "chars": small_chars},
    {
        "adamw": (
            "arc_top_k density=0.02",
            "dion fraction=0.125 bits=8",
            "dion2 fraction=0.0625 bits=8",
            "demo k=8",
            f"heloco sync_every=64 {_SLOW}",
            "demo k=2",
            "sparta share=0.0025",
            "sparse_loco sync_every=12",
            f"heloco+quantize4+ef14 sync_every=128 {_SLOW}",
            f"heloco+quantize4+ef14 sync_every=400 {_SLOW}",
            f"decoupled_diloco+quantize4+ef14 sync_every=54 {_SLOW}",
            "local_sgd rank=8 bits=8 sync_every=8",
            "local_sgd rank=4 bits=8 sync_every=18",
            "local_sgd rank=8 bits=8 sync_every=32",
            f"diloco rank=8 bits=8 sync_every=8 {_SLOW}",
            f"diloco rank=4 bits=8 sync_every=18 {_SLOW}",
            f"diloco rank=8 bits=8 sync_every=32 {_SLOW}",
        ),
    },
    budgets={8: 0.01, 32: 0.01, 100: 0.01, 400: 0.02},
)
METHODS = Table(
    {"digits": digits, "chars": small_chars},
    {
        "momentum": (
            "power_sgd rank=8",
            "deep_gradient_compression density=0.01 warmup_steps=30",
        ),
        "adamw": (
            "power_sgd rank=16",
            "one_bit_adam",
            "one_bit_adam+quantize4+ef14",
            "zero_one_adam+quantize4+ef14 local_doubling=100 most_local_steps=4",
            "all_reduce+quantize4+loco",
        ),
        "lamb": ("one_bit_lamb",),
    },
    budgets={1: 0.01},
)
LATER = Table(
    {"chars": small_chars},
    {
        "adamw": (
            "local_sgd sync_every=5",
            "local_sgd sync_every=30",
            f"diloco sync_every=15 {_SLOW}",
            f"diloco+quantize4+ef14 sync_every=16 {_SLOW}",
            f"diloco+sign+ef14 sync_every=6 {_MEAN}",
            f"diloco+sign+ef14 sync_every=24 {_MEAN}",
            f"streaming_diloco sync_every=6 overlap=1 {_MEAN}",
            "eager_diloco sync_every=5 outer_learning_rate=0.5 outer_momentum=0",
            "sparse_loco sync_every=3",
            "sparse_loco sync_every=12",
        ),
        "muon": (
            f"diloco sync_every=5 {_MEAN}",
            f"diloco+sign+ef14 sync_every=6 {_MEAN}",
        ),
    },
    steps=3000,
    budgets={100: 0.02, 400: 0.01},
)


def ranked(labels: Sequence[str] | None = None) -> Table:
    """The relaxations that a plan ranks and that are not exact.

    Args:
      labels: labels of a plan, without algorithm; None: all.

    Raises:
      ValueError: a label that no plan has.
    """
    found = candidates(Network(workers=WORKERS))
    lossy = [bare(c.label) for c in found if quality_of(c.label).name != "exact"]
    known = list(dict.fromkeys(lossy))
    if odd := [label for label in labels or () if label not in known]:
        raise ValueError(f"method must be one of {known}, got {odd[0]!r}")
    chosen = [label for label in known if not labels or label in labels]
    return Table(TASKS, {"adamw": chosen})

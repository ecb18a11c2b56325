"""What `relaxjax compare` is asked for."""

from dataclasses import dataclass
from pathlib import Path

from relaxjax.cli.common._takes import argument, option


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """The options of `relaxjax compare`."""

    what: str | None = argument(
        "A task file, FILE.py or FILE.py:NAME; digits or chars; or the folder "
        "of a study, whose report is written again.",
        metavar="TASK",
    )
    relaxation: list[str] | None = option(
        "Relaxation, with options after blanks, as in 'diloco sync_every=16'; "
        "repeat it. The first is the baseline."
    )
    seeds: int = option("Runs of each to report.", default=3, min=1)
    tune: list[str] | None = option(
        "Learning rates to try, a factor of 3 apart (default: 3; 1 tunes "
        "nothing); or values of an option. May be repeated.",
        metavar="K | OPTION=A,B,C",
    )
    workers: int = option("Emulated workers.", default=8, min=1)
    network: list[str] | None = option(
        "Bandwidth and latency of a worker's link, as in 1gbit,10ms; may be repeated."
    )
    steps: int | None = option("Steps of a run.")
    batch_size: int | None = option("Rows of a step, over all workers.")
    compute_ms: float | None = option(
        "Time of a step without communication in ms; measured here by default."
    )
    target: float | None = option(
        "Validation metric to reach; default: the baseline's, -2 %."
    )
    seeds_at_once: int | None = option(
        "Seeds that are trained in one program; default: on a GPU as many as "
        "fit, else 1.",
        min=1,
    )
    budget: str | None = option("Begin no run after this time, as in 30m, and report.")
    shard: str = option(
        "Do the relaxations of this part only, as in 3/8.", default="1/1"
    )
    out: Path = option("Folder of the study.", default=Path("runs/study"))
    skeleton: Path | None = option("Write a task file to begin with, and exit.")

"""What `relaxjax train` is asked for; None leaves a value to the task."""

from dataclasses import dataclass
from pathlib import Path

from relaxjax.cli.common._known import OrderName, relaxations, tasks
from relaxjax.cli.common._takes import option


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """The options of `relaxjax train`."""

    relaxation: str = option(
        "What to train with: a name from the lists above.",
        default="all_reduce",
        metavar="NAME",
        autocompletion=relaxations,
    )
    workers: int | None = option(
        "Workers. Default: 8, or all devices of several processes."
    )
    task: str = option(
        "What to learn: handwritten digits, Python source text, or the task "
        "that a function of your own file returns.",
        default="digits",
        metavar="digits | chars | FILE.py[:NAME]",
        autocompletion=tasks,
    )
    steps: int | None = option("Number of steps. Default: the task's own.")
    seed: int = option("Seed of the initial model and the batches.", default=0)
    out: Path | None = option("Folder for run.json and curves.png.")
    batch_size: int | None = option("Rows over all workers. Default: the task's own.")
    learning_rate: float | None = option("Peak rate. Default: the task's own.")
    bucket_mb: float | None = option("Size of the buckets that are sent, in MiB.")
    settings: list[str] | None = option(
        "An option of the relaxation, as in rank=4; may be repeated.",
        "--set",
        metavar="OPTION=NUMBER",
    )
    periods: str | None = option(
        "When workers meet: a number of steps, a schedule, as in "
        "qsr:peaks=2 or table:0=4,1000=16, or a controller, as in "
        "ada_comm:start=16.",
        metavar="SCHEDULE",
    )
    ranks: str | None = option(
        "Ranks that change, as in table:0=4,1000=1, or a controller, as in "
        "accordion:low=1,high=4,every=200, or l_greco:rank=2,every=200.",
        metavar="TABLE",
    )
    codes: str | None = option(
        "Bits that change, as in table:0=8,1000=4, or a controller, as in "
        "accordion:low=4,high=8,every=200; with error feedback.",
        metavar="TABLE",
    )
    merge: str | None = option(
        "How contributions become one: mean, rda, or a rule such as clipped "
        "or trimmed:b=1.",
        metavar="RULE",
    )
    order: OrderName | None = option("Order of the transfers of parameters.")
    accumulate: int = option("Steps whose gradients are sent together.", default=1)
    skip_nonfinite: bool = option(
        "All skip a step where one has a NaN.", "--skip-nonfinite", default=False
    )
    check_every: int | None = option("Steps between checks that all models are equal.")
    lost_after: float = option(
        "Seconds of silence until a process counts as lost.", default=15.0
    )
    stuck_after: float = option(
        "Seconds without a step until processes give up.", default=300.0
    )
    checkpoint_every: int | None = option(
        "Steps from one checkpoint in --out to the next."
    )
    resume: bool = option(
        "Continue from the last checkpoint.", "--resume", default=False
    )
    force: bool = option(
        "Remove an earlier run's results from --out.", "--force", default=False
    )
    no_baseline: bool = option(
        "Skip the one-worker run.", "--no-baseline", default=False
    )
    as_json: bool = option("Print only JSON: a list of runs.", "--json", default=False)

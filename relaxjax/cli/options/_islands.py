"""What `relaxjax islands` is asked for."""

from dataclasses import dataclass
from pathlib import Path

from relaxjax._core.foreign._ranges import PROCESSES
from relaxjax.cli.common._takes import argument, option

_MOST = int(PROCESSES.most)


@dataclass(frozen=True, kw_only=True)
class IslandsOptions:
    """The options of `relaxjax islands`."""

    what: str = argument(
        "A Python script; status or replay.", default=..., metavar="SCRIPT"
    )
    arguments: list[str] | None = argument(
        "The script's arguments; the folder of the run.", metavar="..."
    )
    count: int = option(
        "Number of islands.", "--islands", "-n", default=2, min=1, max=_MOST
    )
    carrier: str = option(
        "Where they meet: folder:DIR, bucket:URL or ray:DIR.",
        default="folder:runs/islands",
    )
    emulated: bool = option(
        "With replay: all islands in one program, SCRIPT's.",
        "--emulated",
        default=False,
    )
    html: Path | None = option("With status: a page to write as well.")
    processes: int = option(
        "Number of processes in each island.", default=1, min=1, max=_MOST
    )
    spares: bool = option(
        "A process for each island that has imported JAX waits.",
        "--spares",
        default=False,
    )
    watch: bool = option(
        "With status: look again until Ctrl-C.", "--watch", default=False
    )

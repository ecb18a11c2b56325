"""How long the command line and the package take to start, beside what they stand on.

Whole processes, in turns: `relaxjax --help` beside an import of typer and rich, and the
first use of `relaxjax.all_reduce` beside an import of jax and optax.
"""

import subprocess
import sys

from benchmarks.measure import interleaved, milliseconds, ratio
from benchmarks.report import Plot, Result, Rounds, Run, Table, benchmark

CODES = {
    "import typer, rich": "import typer, rich",
    "relaxjax --help": "from relaxjax.cli import main; main()",
    "import jax, optax": "import jax, optax",
    "relaxjax.all_reduce": "import relaxjax; relaxjax.all_reduce",
}
PAIRS = {
    "relaxjax --help": "import typer, rich",
    "relaxjax.all_reduce": "import jax, optax",
}
TARGET = 0.6  # seconds of `relaxjax --help`


@benchmark("startup")
def startup(run: Run, rounds: Rounds = 20) -> Result:
    """Seconds of `relaxjax --help` and of the first use of the package."""
    seconds = interleaved({k: lambda k=k: _process(CODES[k]) for k in CODES}, rounds)
    times = {name: milliseconds(series) for name, series in seconds.items()}
    cells = [
        (name, *times[name], _over(seconds, name) if name in PAIRS else "")
        for name in CODES
    ]
    columns = ("process", "lower ms", "median ms", "upper ms", "over the one above")
    medians = [times[name][1] for name in CODES]
    return run.finish(
        {"conditions": run.conditions(), "seconds": seconds, "target": TARGET},
        tables=[Table("Start of a process", columns, cells)],
        plots=[
            Plot("Start", ("process", "milliseconds"), {"median": ([*CODES], medians)})
        ],
    )


def _over(seconds: dict[str, list[float]], name: str) -> str:
    return str(ratio(seconds[name], seconds[PAIRS[name]]))


def _process(code: str) -> None:
    arguments = [sys.executable, "-c", code, "--help"]
    subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL)

"""A benchmark is its command: parameters, conditions, tables, JSON and plots.

    @benchmark("fusion", devices="workers")
    def fusion(run: Run, workers: Workers = 8, rounds: Rounds = 20) -> Result:
        ...
        return run.finish(result, tables=[...], plots=[...])

Its parameters behind `run` are the options of `python -m benchmarks fusion`, and what
they are bound to is among the conditions in the JSON.
"""

import inspect
import json
import os
import platform
import resource
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import jax
import typer
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table as RichTable

from relaxjax.cli.common._devices import emulate_devices
from relaxjax.cli.common._known import TaskName

Result = dict[str, Any]
Out = Annotated[Path, typer.Option(help="Folder of the JSON and the plots.")]
Workers = Annotated[int, typer.Option(min=1, help="Devices, emulated on CPU.")]
Rounds = Annotated[int, typer.Option(min=5, help="Interleaved rounds.")]
OneTask = Annotated[TaskName, typer.Option(help="What is trained.")]
Tasks = Annotated[
    list[TaskName] | None, typer.Option(help="What is trained; default: both.")
]
TaskSteps = Annotated[
    int | None, typer.Option(min=2, help="Steps of a run; default: the task's own.")
]
Runs = Annotated[int, typer.Option(min=1, help="Runs of each method.")]
RandomOrders = Annotated[
    int, typer.Option(min=1, help="Random orders to compare with.")
]


class Unavailable(RuntimeError):
    """This machine cannot run a benchmark; the message says why."""


class Table(NamedTuple):
    """What is printed: a title, headings, and cells; floats are rounded."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]

    @classmethod
    def of(
        cls,
        title: str,
        rows: Iterable[Mapping[str, Any]],
        *columns: str | tuple[str, str | Callable[[Any], object]],
    ) -> "Table":
        """A table of JSON rows.

        Args:
          title: the title.
          rows: the rows.
          *columns: keys, or pairs of a heading and a key or a function of a row.
        """
        pairs = [(c, c) if isinstance(c, str) else c for c in columns]
        cells = [
            [row[get] if isinstance(get, str) else get(row) for _, get in pairs]
            for row in rows
        ]
        return cls(title, [heading for heading, _ in pairs], cells)


class Plot(NamedTuple):
    """Lines with markers: x and y by label; `suffix` ends the file's name."""

    title: str
    axes: tuple[str, str]
    lines: Mapping[str, tuple[Sequence[Any], Sequence[float]]]
    suffix: str = ""


class Run(NamedTuple):
    """A benchmark that is running.

    Attributes:
      name: the name of its files.
      out: the folder of its files.
      options: its parameters, as they are bound.
    """

    name: str
    out: Path
    options: Mapping[str, Any] = {}

    def conditions(self, **others: Any) -> dict[str, Any]:
        """The machine, the versions, the options, and what is known beside them."""
        info = Path("/proc/cpuinfo")
        lines = info.read_text().splitlines() if info.exists() else []
        names = [line.split(":")[1].strip() for line in lines if "model name" in line]
        return {
            "machine": names[0] if names else platform.machine(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "jax": version("jax"),
            "numpy": version("numpy"),
            **self.options,
            **others,
        }

    def save(self, result: Result) -> None:
        """Writes what there is so far as JSON."""
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / f"{self.name}.json").write_text(json.dumps(result, indent=1) + "\n")

    def finish(
        self,
        result: Result,
        *,
        tables: Iterable[Table] = (),
        notes: Iterable[object] = (),
        plots: Iterable[Plot] = (),
    ) -> Result:
        """Prints the conditions, tables and notes, saves the JSON, draws the plots.

        Args:
          result: what was measured, with its "conditions".
          tables: what is printed first.
          notes: lines behind the tables: targets and verdicts.
          plots: what is drawn.

        Returns:
          `result`.
        """
        print(json.dumps(result["conditions"]))
        for table in tables:
            show(*table)
        for note in notes:
            print(note)
        self.save(result)
        for title, axes, lines, suffix in plots:
            plot(self.out / f"{self.name}{suffix}.png", title, axes, lines)
        return result


class Benchmark:
    """A function of a `Run` and of options, and its command.

    `command` is the function whose signature typer reads. Unlike a call of the
    benchmark it sets JAX up first, and a machine that cannot run it is exit code 2.
    """

    def __init__(
        self,
        function: Callable[..., Result],
        name: str,
        devices: int | str | None,
        platform: str | None,
        family: str,
    ):
        self._function, self._name, self._out = function, name, Path("runs") / family
        whole = inspect.signature(function)
        options = list(whole.parameters.values())[1:]
        self._options = whole.replace(parameters=options)
        out = inspect.Parameter(
            "out", inspect.Parameter.KEYWORD_ONLY, default=self._out, annotation=Out
        )

        def command(**options: Any) -> Result:
            count = options[devices] if isinstance(devices, str) else devices
            if count is not None:
                emulate_devices(count)
            if platform is not None:
                jax.config.update("jax_platforms", platform)
            try:
                return self(**options)
            except Unavailable as reason:
                typer.echo(f"relaxjax: {reason}", err=True)
                raise typer.Exit(2) from None

        command.__doc__ = self.__doc__ = function.__doc__
        vars(command)["__signature__"] = whole.replace(parameters=[*options, out])
        self.command = command

    def __call__(self, *, out: str | Path | None = None, **options: Any) -> Result:
        """Runs it here.

        Args:
          out: the folder of its files.
          **options: its parameters.

        Returns:
          What was measured, as saved.
        """
        bound = self._options.bind(**options)
        bound.apply_defaults()
        folder = self._out if out is None else Path(out)
        return self._function(Run(self._name, folder, bound.arguments), **options)


def benchmark(
    name: str,
    *,
    devices: int | str | None = None,
    platform: str | None = None,
    family: str = "bench",
) -> Callable[[Callable[..., Result]], Benchmark]:
    """Makes a function of a `Run` and of options a benchmark and its command.

    Args:
      name: the name of its files.
      devices: emulated ones that its command needs; a name: the option that says it.
      platform: to which its command keeps JAX.
      family: the folder of its files under `runs`.
    """
    return lambda function: Benchmark(function, name, devices, platform, family)


def peak_gib() -> float:
    """The process's largest resident memory so far, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Prints a table; floats are rounded."""
    table = RichTable(title=title)
    for place, column in enumerate(columns):
        table.add_column(column, justify="right" if place else "left")
    for row in rows:
        table.add_row(*(f"{c:.4g}" if isinstance(c, float) else str(c) for c in row))
    Console(width=140).print(table)


def plot(
    path: Path,
    title: str,
    axes: tuple[str, str],
    lines: Mapping[str, tuple[Sequence[Any], Sequence[float]]],
) -> None:
    """Draws lines with markers into a file; `lines` has x and y by label."""
    figure = Figure(figsize=(8, 5), layout="constrained")
    FigureCanvasAgg(figure)
    chart = figure.add_subplot()
    for label, (x, y) in lines.items():
        chart.plot(x, y, marker="o", label=label)
    chart.set_title(title)
    chart.set_xlabel(axes[0])
    chart.set_ylabel(axes[1])
    if lines:
        chart.legend(fontsize="small")
    figure.savefig(path, dpi=120)

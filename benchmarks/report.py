"""Conditions, tables, JSON and plots of the benchmarks of orders."""

import json
import os
import platform
import resource
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

Row = Sequence[object]


def conditions(**others: Any) -> dict[str, Any]:
    """The machine, the versions, and what the bench itself was told.

    Args:
        **others: parameters of the bench: seeds, sizes, ratios.
    """
    return {
        "machine": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "jax": version("jax"),
        "numpy": version("numpy"),
        **others,
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":")[1].strip() for line in lines if "model name" in line]
    return names[0] if names else platform.machine()


def peak_gib() -> float:
    """The process's largest resident memory so far, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def show(title: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Prints a table.

    Args:
        title: above it.
        columns: headings.
        rows: cells; floats are rounded.

    Raises:
        ImportError: rich is missing.
    """
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError as error:
        raise ImportError(
            'the benchmarks need rich: pip install "relaxjax[cli]"'
        ) from error
    table = Table(title=title)
    for place, column in enumerate(columns):
        table.add_column(column, justify="right" if place else "left")
    for row in rows:
        table.add_row(*(f"{c:.4g}" if isinstance(c, float) else str(c) for c in row))
    Console(width=140).print(table)


def save(result: dict[str, Any], out: str | Path, name: str) -> Path:
    """Writes a result as JSON.

    Args:
        result: to be written.
        out: a folder, made if it is missing.
        name: of the file, without its ending.

    Returns:
        The path without its ending, for the plot beside it.
    """
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.with_suffix(".json").write_text(json.dumps(result, indent=1))
    return path


def plot(
    path: Path,
    title: str,
    axes: tuple[str, str],
    lines: Mapping[str, tuple[Sequence[Any], Sequence[float]]],
) -> None:
    """Draws lines with markers.

    Args:
        path: without its ending.
        title: above.
        axes: labels of x and y.
        lines: x and y by label.

    Raises:
        ImportError: matplotlib is missing.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            'plots need matplotlib: pip install "relaxjax[cli]"'
        ) from error
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
    figure.savefig(path.with_suffix(".png"), dpi=120)

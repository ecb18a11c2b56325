"""The tables of `relaxjax order`, and what their symbols mean."""

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from relaxjax.cli.printed import _tables

SYMBOLS = {
    "M": "the transfer's own time",
    "P": "computation that waits for this transfer alone",
    "M+": "the least transfer time that completes an operation that needs this "
    "transfer and others; - if no operation does",
    "E": "of the time that overlap could save, the share that the order saves: "
    "(U - makespan) / (U - L)",
    "L": "work of the busiest of pulls, computation and pushes: no order is faster",
    "U": "all work, one after the other: no order is slower",
    "S": "how much faster the best conceivable order is than the worst: (U - L) / L",
}


def show(report: dict[str, Any]) -> None:
    """Prints a report for people, each table with a legend."""
    console = Console()
    _tables.show(console, _transfer_table(report))
    console.print(_legend("M", "P", "M+"))
    _tables.show(console, _makespan_table(report))
    limits = {name: 1e3 * t for name, t in report["bounds"].items()}
    console.print(
        f"L = {limits['lower']:.4g} ms, from the graph {limits['graph_lower']:.4g} ms, "
        f"U = {limits['upper']:.4g} ms, S = {report['speedup_potential']:.3f}; "
        f"{100 * report['attributed']:.1f} % of the computation follows a rule"
    )
    console.print(_legend("E", "L", "U", "S"))


def _legend(*symbols: str) -> Table:
    """A line for each symbol, with long lines indented."""
    grid = Table.grid(padding=(0, 2))
    for symbol in symbols:
        grid.add_row(symbol, SYMBOLS[symbol])
    return grid


def _transfer_table(report: dict[str, Any]) -> Table:
    table = Table(title=f"Transfers of {report['target']} in best order (ms)")
    table.add_column("", justify="right")
    table.add_column("parameter")
    for column in ("bytes", "M", "P", "M+"):
        table.add_column(column, justify="right")
    rows = report["transfers"]
    times = (
        _tables.aligned([row[key] and 1e3 * row[key] for row in rows], digits=4)
        for key in ("M", "P", "M_plus")
    )
    for rank, (row, *cells) in enumerate(zip(rows, *times, strict=True), start=1):
        table.add_row(str(rank), Text(row["name"]), f"{row['bytes']:,}", *cells)
    return table


def _makespan_table(report: dict[str, Any]) -> Table:
    table = Table(title="Makespan")
    for column in ("order", "ms", "E", "over the bound"):
        table.add_column(column, justify="left" if column == "order" else "right")
    least = report["bounds"]["graph_lower"]
    rows = sorted(report["makespan"].items(), key=lambda item: item[1])
    shown = _tables.aligned([1e3 * t for _, t in rows], digits=4)
    for (name, t), cell in zip(rows, shown, strict=True):
        over = f"{100 * (t / least - 1):.2f} %" if least else "-"
        mean_of = f"random, mean of {report['random_orders']}"
        label = mean_of if name == "random" else name
        efficiency = f"{report['efficiency'][name]:.4f}"
        table.add_row(label, cell, efficiency, over)
    return table

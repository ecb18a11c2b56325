"""The tables of `relaxjax order`, and what their symbols mean."""

from typing import Any

from rich.console import Console
from rich.table import Table

SYMBOLS = {
    "M": "the transfer's own time",
    "P": "computation that waits for this transfer alone",
    "M+": "the least transfer time that completes an operation that needs this "
    "transfer and others; - if there is none",
    "E": "of the time that overlap could save, the share that the order saves: "
    "(U - makespan) / (U - L)",
    "L": "work of the busiest of pulls, computation and pushes: no order is faster",
    "U": "all work, one after the other: no order is slower",
    "S": "how much faster the best conceivable order is than the worst: (U - L) / L",
}


def show(report: dict[str, Any]) -> None:
    """Prints a report for people, each table with a legend."""
    console = Console()
    console.print(_transfer_table(report))
    console.print(_legend("M", "P", "M+"))
    console.print(_makespan_table(report))
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
    table.add_column("")
    table.add_column("parameter", overflow="fold")
    for column in ("bytes", "M", "P", "M+"):
        table.add_column(column, justify="right")
    for rank, row in enumerate(report["transfers"], start=1):
        times = (row["M"], row["P"], row["M_plus"])
        cells = ("-" if t is None else f"{1e3 * t:.4g}" for t in times)
        table.add_row(str(rank), row["name"], f"{row['bytes']:,}", *cells)
    return table


def _makespan_table(report: dict[str, Any]) -> Table:
    table = Table(title="Makespan")
    for column in ("order", "ms", "E", "over the bound"):
        table.add_column(column, justify="left" if column == "order" else "right")
    least = report["bounds"]["graph_lower"]
    for name, t in sorted(report["makespan"].items(), key=lambda item: item[1]):
        over = f"{100 * (t / least - 1):.2f} %" if least else "-"
        mean_of = f"random, mean of {report['random_orders']}"
        label = mean_of if name == "random" else name
        efficiency = f"{report['efficiency'][name]:.4f}"
        table.add_row(label, f"{1e3 * t:.4g}", efficiency, over)
    return table

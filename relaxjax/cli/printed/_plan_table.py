"""The table of `relaxjax plan`, as wide as the terminal, and a word before it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from relaxjax import plan as planner
from relaxjax._core.foreign._words import fixed
from relaxjax.cli.printed._tables import show as show_table

_COLUMNS: dict[str, Callable[["planner.Row"], str]] = {
    "step ms": lambda row: fixed(1e3 * row.seconds, 1),
    "messages ms": lambda row: fixed(1e3 * row.prediction.messages, 1),
    "MB sent": lambda row: fixed(row.prediction.nbytes / 1e6, 3),
    "memory GB": lambda row: fixed(row.prediction.memory / 1e9, 2),
}
_LEFT_OUT = ("messages ms", "memory GB")  # where names would not be whole
_FIGURES_WIDE = 62  # columns of a terminal for all figures beside the name
_QUICK = 1.0  # seconds without a word, where nobody sees a terminal


@contextmanager
def busy(text: str) -> Iterator[None]:
    """Says on stderr what is under way: on a terminal, or if it takes seconds."""
    console = Console(stderr=True)
    if console.is_terminal:
        with console.status(text):
            yield
        return
    line = Timer(_QUICK, typer.echo, (f"relaxjax: {text} ...",), {"err": True})
    line.daemon = True
    line.start()
    try:
        yield
    finally:
        line.cancel()
        line.join()


def show(ranking: "planner.Ranking", cluster: "planner.Network", top: int) -> None:
    """Prints the choice on top, the others below it, and why."""
    others = [row for row in ranking.rows if row is not ranking.choice][: top - 1]
    shown = [ranking.choice, *others]
    console = Console()
    narrow = max(len(row.label) for row in shown) + _FIGURES_WIDE > console.width
    table = Table(
        title=f"{cluster.workers} workers, {cluster.link.bandwidth * 8 / 1e9:g} Gbit/s "
        f"and {cluster.link.latency * 1e3:g} ms between hosts",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        show_edge=False,
        title_justify="left",
    )
    table.add_column("relaxation", no_wrap=True)
    for column in _COLUMNS:
        if not (narrow and column in _LEFT_OUT):
            table.add_column(column, justify="right", no_wrap=True)
    table.add_column("quality", no_wrap=True)
    for row in shown:
        cells = [
            of(row) for k, of in _COLUMNS.items() if not (narrow and k in _LEFT_OUT)
        ]
        mark = "*" if row is ranking.choice else " "
        style = "green" if row is ranking.choice else None
        table.add_row(f"{mark} {row.label}", *cells, row.quality.name, style=style)
    show_table(console, table)
    wider = " A wider terminal shows messages and memory." if narrow else ""
    console.print(_caption(ranking) + wider, style="dim italic", highlight=False)
    if len(ranking.rows) > top:
        console.print(f"{len(ranking.rows) - top} more: --top {len(ranking.rows)}")
    console.print(ranking.verdict, highlight=False)
    console.print(ranking.choice.tx, highlight=False, soft_wrap=True)


def _caption(ranking: "planner.Ranking") -> str:
    """How to read the table, and why the first rows may not be the choice."""
    faster = [row for row in ranking.rows if row.seconds < ranking.choice.seconds]
    refused = sum(row.label not in ranking.allowed for row in faster)
    ones = "1 faster one is" if refused == 1 else f"{refused} faster ones are"
    rest = f" {ones} not allowed by --quality or --memory-gb." if refused else ""
    return "* is the choice; all others are in the order of their steps." + rest


def show_split(split: "planner.Split") -> None:
    """Prints each leg without codes, and then in codes."""
    console = Console()
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        show_edge=False,
        caption_justify="left",
        caption="Bytes and times of a worker in a step; codes are of compression.mx.",
    )
    table.add_column("leg", no_wrap=True)
    table.add_column("forward, backward", no_wrap=True)
    for name in ("MB forward", "MB backward", "ms", "of step"):
        table.add_column(name, justify="right", no_wrap=True)
    for leg in split.legs:
        plain = not leg.forward
        table.add_row(
            f"{leg.axis} {leg.workers}" if plain else "",
            ", ".join(element or "16 bits" for element in (leg.forward, leg.backward)),
            *(fixed(nbytes / 1e6, 3) for nbytes in leg.sent),
            fixed(1e3 * leg.seconds, 1),
            f"{leg.seconds / (leg.seconds + split.compute):.0%}",
        )
    console.print(table)
    console.print(
        f"A worker computes {1e3 * split.compute:g} ms a step, and holds "
        f"{fixed(split.memory / 1e9, 2)} GB of params, gradients and moments.",
        highlight=False,
    )

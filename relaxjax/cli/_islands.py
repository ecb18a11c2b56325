"""`relaxjax islands`: processes that may be killed; how a run stands; merges again."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from relaxjax import islands as rooms
from relaxjax.cli._errors import user_errors

SETTINGS = {
    "context_settings": {
        "allow_interspersed_args": True,
        "ignore_unknown_options": True,
    }
}
_CACHE = "JAX_COMPILATION_CACHE_DIR"


def islands(
    what: Annotated[
        str, typer.Argument(metavar="SCRIPT", help="A Python script; status or replay.")
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="...", help="The script's arguments; the folder of the run."
        ),
    ] = None,
    count: Annotated[
        int, typer.Option("--islands", "-n", min=1, help="Number of islands.")
    ] = 2,
    carrier: Annotated[
        str, typer.Option(help="Where they meet: folder:DIR.")
    ] = "folder:runs/islands",
) -> None:
    """Run a script in several islands, and start again those that end.

    `relaxjax islands status DIR` shows how a run stands; `relaxjax islands replay DIR`
    merges the contributions that it has kept once more, and compares.
    """
    rest = arguments or []
    with user_errors():
        if what in ("status", "replay"):
            if len(rest) != 1 or not Path(rest[0], "run.json").is_file():
                named = " ".join(rest) or "no folder"
                raise ValueError(f"islands {what}: {named} is not the folder of a run")
            store = rooms.open_store(f"folder:{rest[0]}")
            code = _status(store) if what == "status" else _replay(store)
        else:
            code = _run(what, rest, count, carrier)
    raise typer.Exit(code)


def _run(script: str, arguments: list[str], count: int, carrier: str) -> int:
    if not Path(script).is_file():
        raise ValueError(f"islands: {script} is not a file; name a Python script")
    folder = Path(rooms.open_store(carrier).place)
    names = [f"island-{number}" for number in range(count)]
    cache = {} if _CACHE in os.environ else {_CACHE: str(folder / "cache")}
    command = [sys.executable, "-u", script, *arguments]
    return rooms.supervise(command, names, carrier, cache)


def _status(store: "rooms.Folder") -> int:
    now = rooms.status(store)
    table = Table("island", "incarnation", "state", "behind", "merged", "tokens")
    for row in now.rows:
        behind = "never" if row.behind is None else str(row.behind)
        cells = str(row.incarnation), row.state, behind, str(row.merged)
        table.add_row(row.name, *cells, f"{row.tokens:g}")
    console = Console()
    console.print(f"{now.version} merges; the lease is held by {now.leader}")
    console.print(table)
    if now.last:
        last = now.last
        here = ", ".join(c["island"] for c in last["contributions"])
        console.print(
            f"last merge: fragment {last['fragment']} of {here}; absent: "
            f"{', '.join(last['absent']) or 'nobody'}; {now.per_second:.4g} tokens/s "
            "merged since the first"
        )
    return 0


def _replay(store: "rooms.Folder") -> int:
    done, equal, largest = 0, 0, 0.0
    for merge in rooms.replay(store):
        if merge.fault:
            typer.echo(f"merge {merge.version}: {merge.fault}", err=True)
            return 1
        done, equal = done + 1, equal + merge.is_equal
        largest = max(largest, merge.difference)
    tail = "" if equal == done else f"; the largest difference is {largest:.3g}"
    typer.echo(f"{done} merges made again, {equal} equal to the bit{tail}")
    return 0

"""`relaxjax islands`: processes that may be killed; how a run stands; merges again."""

import os
import runpy
import sys
from os.path import isfile
from pathlib import Path
from typing import Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from relaxjax import hosts
from relaxjax import islands as rooms
from relaxjax._core.foreign._folders import local_path, own_cache, write_whole
from relaxjax.cli.common._errors import user_errors
from relaxjax.cli.common._takes import takes
from relaxjax.cli.options._islands import IslandsOptions
from relaxjax.cli.printed._islands_page import HEADS, cells, counted, last_merge, page

SETTINGS = {
    "context_settings": {
        "allow_interspersed_args": True,
        "ignore_unknown_options": True,
    }
}
_GOES_WITH = {"emulated": "replay", "html": "status", "watch": "status"}
_GRACE = 1  # seconds that the other processes of an island get when one has failed
_CACHE = "JAX_COMPILATION_CACHE_DIR"
_CACHED_FROM = "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"


@takes(IslandsOptions)
def islands(options: IslandsOptions) -> None:
    """Run a script in several islands, and start again those that end.

    `relaxjax islands status DIR` shows how a run stands. `relaxjax islands replay DIR`
    merges the contributions that it has kept once more, and compares; `relaxjax islands
    replay DIR SCRIPT ...` also runs the steps of each island once more, one island
    after the other, or `--emulated` all in one program, which SCRIPT's `program()` is.
    """
    with user_errors():
        for option, command in _GOES_WITH.items():
            if getattr(options, option) and options.what != command:
                raise ValueError(f"--{option} goes with {command}")
        if options.what in ("status", "replay"):
            code = _look(options)
        else:
            _require_alone(options)
            code = _run(options)
    raise typer.Exit(code)


def _require_alone(options: IslandsOptions) -> None:
    """Islands of several processes have neither spares nor actors."""
    processes, carrier = options.processes, options.carrier
    if processes > 1 and (options.spares or carrier.startswith("ray:")):
        other = "--spares" if options.spares else f"--carrier {carrier}"
        raise ValueError(
            f"--processes {processes} does not go with {other}: an island of several "
            "processes starts as a whole, on the machine where the command runs"
        )


def _python(processes: int) -> list[str]:
    """The command before a script's name, in one process or in several."""
    if processes == 1:
        return [sys.executable, "-u"]
    run = "run", "-n", str(processes), "--grace", str(_GRACE)
    return [sys.executable, "-u", "-m", "relaxjax", *run]


def _look(options: IslandsOptions) -> int:
    """`status` and `replay`, of which only the second takes a script."""
    what, rest = options.what, options.arguments or []
    one = len(rest) == 1 or (rest and what == "replay")
    try:
        store = rooms.found(rest[0]) if one else None
    except (OSError, ImportError) as error:
        raise ValueError(f"islands {what}: {rest[0]}: {error}") from error
    if store is None:
        named = " ".join(rest) or "no folder"
        raise ValueError(f"islands {what}: {named} is not the folder of a run")
    if what == "status":
        look = _watch if options.watch else _status
        return look(store, options.html)
    status, script = _replay(store), rest[1:]
    if status or not (script or options.emulated):
        return status
    if options.emulated:
        return _emulated(store, script)
    return _rerun(store, script, options.processes)


def _run(options: IslandsOptions) -> int:
    script, carrier = options.what, options.carrier
    if not isfile(script):
        raise ValueError(f"islands: {script} is not a file; name a Python script")
    kind = carrier.partition(":")[0]
    # For quick restarts; not in the shared folder, as programs from there would be run.
    cache = {_CACHE: str(own_cache() / "islands"), _CACHED_FROM: "0.1"}
    cache = {k: v for k, v in cache.items() if k not in os.environ}
    command = [*_python(options.processes), script, *(options.arguments or [])]
    start = rooms.supervise_on_ray if kind == "ray" else rooms.supervise
    names = rooms.names(options.count)
    return start(command, names, carrier, cache, spares=options.spares)


def _status(store: rooms.Store, html: Path | None) -> int:
    Console().print(_shown(store, html))
    return 0


def _watch(store: rooms.Store, html: Path | None) -> int:
    """The same, again and again: a look takes a second."""
    hosts.keeps(nothing="the run goes on")
    with Live(auto_refresh=False) as live:
        while True:
            live.update(_shown(store, html), refresh=True)


def _shown(store: rooms.Store, html: Path | None) -> Group:
    """How the run stands now; it is written to the page as well."""
    try:
        now = rooms.status(store)
    except OSError as error:
        raise ValueError(f"islands status: {store.place}: {error}") from error
    if html is not None:
        try:
            path = local_path("islands status", "html", html)
            write_whole(path, page(now, store.place))
        except OSError as error:
            raise ValueError(f"--html {html}: {error.strerror}") from error
    table = Table(*HEADS)
    for row in now.rows:
        table.add_row(*cells(row))
    head = Text(f"{counted(now)}; the lease is held by {now.leader}")
    return Group(head, table, *([Text(last_merge(now))] if now.last else []))


def _replay(store: rooms.Store) -> int:
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


def _rerun(store: rooms.Store, arguments: list[str], processes: int) -> int:
    _require_script(arguments)
    done, equal, members, largest = 0, 0, set(), 0.0
    for found in rooms.rerun(store, [*_python(processes), *arguments]):
        if found.fault:
            typer.echo(
                f"merge {found.version}, {found.member}: {found.fault}", err=True
            )
            return 1
        if not found.is_equal:
            typer.echo(
                f"merge {found.version}, {found.member}: the contribution differs by "
                f"{found.difference:.3g}"
            )
        done, equal = done + 1, equal + found.is_equal
        largest = max(largest, found.difference)
        members.add(found.member)
    tail = "" if equal == done else f"; the largest difference is {largest:.3g}"
    typer.echo(
        f"{done} contributions of {len(members)} processes made again by their own "
        f"steps, {equal} equal to the bit{tail}"
    )
    return 0


def _emulated(store: rooms.Store, arguments: list[str]) -> int:
    _require_script(arguments)
    try:
        names = runpy.run_path(arguments[0])
        make: Any = names.get("program")
        program: Any = make() if callable(make) else None
    except SystemExit as error:
        raise ValueError(
            f"islands replay --emulated: {arguments[0]} ended by sys.exit({error.code})"
        ) from error
    if program is None:
        raise ValueError(
            f"islands replay --emulated: {arguments[0]} has no function `program`: let "
            "it return a relaxjax.islands.Program, and train only under "
            '`if __name__ == "__main__"`'
        )
    found = list(rooms.emulate(store, program))
    if not found:
        raise ValueError(
            f"islands replay --emulated: {store.place} has no merge, and so nothing to "
            "emulate; a run writes one at the end of its first period"
        )
    worst = max(found, key=lambda merge: merge.difference)
    typer.echo(
        f"{len(found)} merges emulated in one program; the largest difference is "
        f"{worst.difference:.3g}, in merge {worst.version} of a fragment whose largest "
        f"value is {worst.scale:.3g}"
    )
    return 0


def _require_script(arguments: list[str]) -> None:
    if not arguments or not isfile(arguments[0]):
        named = arguments[0] if arguments else "nothing"
        raise ValueError(f"islands replay: {named} is not a script; name the run's")

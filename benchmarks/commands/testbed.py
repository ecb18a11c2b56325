"""`relaxjax bench testbed`: orders between processes."""

from pathlib import Path
from typing import Annotated, Any

import typer

from relaxjax.cli._errors import user_errors

RUNS = Path("runs/bench")


def run_testbed(
    workers: Annotated[
        list[int] | None, typer.Option(min=1, help="Processes; default: 1, 2.")
    ] = None,
    servers: Annotated[
        list[int] | None, typer.Option(min=1, help="Processes; default: 1.")
    ] = None,
    mode: Annotated[
        list[str] | None, typer.Option(help="inference, training; default: both.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="In which orders take turns.")] = 3,
    orders: Annotated[int, typer.Option(min=2, help="Random ones.")] = 20,
    rows: Annotated[
        int | None, typer.Option(min=1, help="For each worker; default: 1024 or 8.")
    ] = None,
    compute: Annotated[str, typer.Option(help="real, or stated: waiting.")] = "real",
    width: Annotated[int, typer.Option(min=1, help="Of the model.")] = 256,
    ratio: Annotated[
        float, typer.Option(min=0.01, help="Communication over computation.")
    ] = 1.0,
    links: Annotated[
        str | None,
        typer.Option(help="namespaces (root) or loopback; default: what is possible."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the JSON.")] = Path(
        "runs/bench"
    ),
) -> dict[str, Any]:
    """Servers and workers as processes: orders of the pulls, measured and predicted."""
    from benchmarks.testbed import study as _testbed

    with user_errors():
        _testbed.check(modes=mode, compute=compute, links=links)
    return _testbed.run_testbed(
        workers=workers or (1, 2),
        servers=servers or (1,),
        modes=mode or _testbed.MODES,
        rounds=rounds,
        orders=orders,
        rows=rows,
        compute=compute,
        width=width,
        comm_over_compute=ratio,
        links=links,
        out=str(out),
    )

"""`relaxjax order FILE.py:FUNCTION`: in which order should the parameters arrive?

Parsing and printing only; the work is done in `relaxjax.schedule`.
"""

import json
import math
from enum import StrEnum
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import typer

from relaxjax import hosts, schedule
from relaxjax._core.foreign._ranges import DRAWS
from relaxjax.cli._function import load_function
from relaxjax.cli.printed import _order_tables


class Mode(StrEnum):
    """Which graph is made of the function."""

    forward = "forward"
    train = "train"


def order(
    target: Annotated[
        str,
        typer.Argument(metavar="FILE.py:FUNCTION", help="A function of a Python file."),
    ],
    *,
    mode: Annotated[
        Mode,
        typer.Option(
            help="forward: the function as it is. train: a loss, its gradient, and the "
            "transfers of both."
        ),
    ] = Mode.forward,
    gbps: Annotated[float, typer.Option(help="Link bandwidth in Gbit/s.")] = 10.0,
    latency_us: Annotated[
        float, typer.Option(help="Latency of each message in us.")
    ] = 50.0,
    tflops: Annotated[float, typer.Option(help="Speed of a device in Tflop/s.")] = 10.0,
    memory_gbs: Annotated[
        float, typer.Option(help="Memory bandwidth of a device in GB/s.")
    ] = 500.0,
    random_orders: Annotated[
        int,
        typer.Option(
            min=1,
            max=int(DRAWS.most),
            help="Number of random orders to compare with.",
        ),
    ] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON.")] = False,
    trace: Annotated[
        Path | None, typer.Option(help="Save the best order's Chrome trace here.")
    ] = None,
    png: Annotated[
        Path | None, typer.Option(help="Draw the best order's timeline here.")
    ] = None,
) -> None:
    """Order the transfers of a function's params; bound the makespan.

    The function is called as FUNCTION(params, ...) and is only traced: nothing is
    computed. Its example arguments come from FUNCTION_args() in the same file, else
    from the defaults of its parameters, else from example_args(); these functions
    return (params, ...), arrays or jax.ShapeDtypeStruct.
    """
    try:
        link = schedule.Link(latency=latency_us * 1e-6, bandwidth=gbps * 1e9 / 8)
        device = schedule.Device(flops=tflops * 1e12, bandwidth=memory_gbs * 1e9)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    graph = _graph(target, mode, link, device)
    report = _report(graph, target, random_orders)
    if as_json:
        typer.echo(json.dumps(report))
    else:
        _order_tables.show(report)
    if trace or png:
        policy = schedule.ordered("best", report["orders"]["best"])
        run = schedule.simulate(graph, policy, schedule.Cluster(link=link))
        _save(run, trace, png)


def _save(run: "schedule.Timeline", trace: Path | None, png: Path | None) -> None:
    try:
        for path, save in ((trace, run.save), (png, run.save_png)):
            if path:
                with hosts.writing(path):
                    save(path)
    except (ImportError, OSError, ValueError) as error:
        raise typer.BadParameter(f"the timeline was not saved: {error}") from error


def _graph(
    target: str, mode: Mode, link: "schedule.Link", device: "schedule.Device"
) -> "schedule.Graph":
    function, args = load_function(target)
    build = schedule.Graph.from_function
    if mode is Mode.train:
        build = schedule.Graph.from_loss
    try:
        return build(function, *args, oracle=schedule.analytic(device), link=link)
    except (
        Exception,
        SystemExit,
    ) as error:  # whatever the user raises
        raise typer.BadParameter(
            f"{target} could not be traced with its example arguments: "
            f"{type(error).__name__}: {error}"
        ) from error


def _report(graph: "schedule.Graph", target: str, random_orders: int) -> dict[str, Any]:
    orders = {
        "best": schedule.best(graph),
        "tac": schedule.tac(graph),
        "tic": schedule.tic(graph),
        "layer": schedule.layer_order(graph),
        "smallest_first": schedule.smallest_first(graph),
    }
    if len(graph.recvs) <= 20 and not graph.sends:
        orders["optimum"] = schedule.optimum(graph)
    seconds = {name: schedule.makespan(graph, o) for name, o in orders.items()}
    shuffled = [schedule.random_order(graph, seed=s) for s in range(random_orders)]
    seconds["random"] = mean(schedule.makespan(graph, o) for o in shuffled)
    lower, upper = schedule.bounds(graph)
    return {
        "target": target,
        "attributed": graph.attributed,
        "transfers": _transfers(graph, orders["best"]),
        "orders": orders,
        "makespan": seconds,
        "efficiency": {n: schedule.efficiency(graph, t) for n, t in seconds.items()},
        "bounds": {
            "lower": lower,
            "upper": upper,
            "graph_lower": schedule.lower_bound(graph),
        },
        "speedup_potential": schedule.speedup_potential(graph),
        "random_orders": random_orders,
    }


def _transfers(graph: "schedule.Graph", best: list[str]) -> list[dict[str, Any]]:
    properties = schedule.properties(graph)
    rows = []
    for name in best:
        p = properties[name]
        m_plus = None if math.isinf(p.M_plus) else p.M_plus
        row = {"name": name, "bytes": graph.nbytes[name]}
        rows.append({**row, "M": p.M, "P": p.P, "M_plus": m_plus})
    return rows

"""`relaxjax order FILE.py:FUNCTION`: in which order should the parameters arrive?

Parsing and printing only; the work is done in `relaxjax.schedule`.
"""

import json
import math
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from statistics import mean
from typing import Any

import typer

from relaxjax import hosts, schedule
from relaxjax._core.foreign._ranges import DRAWS
from relaxjax.cli.common._function import load_function
from relaxjax.cli.common._takes import argument, option, takes
from relaxjax.cli.printed import _order_tables


class Mode(StrEnum):
    """Which graph is made of the function."""

    forward = "forward"
    train = "train"


@dataclass(frozen=True, kw_only=True)
class OrderOptions:
    """The options of `relaxjax order`."""

    target: str = argument(
        "A function of a Python file.", default=..., metavar="FILE.py:FUNCTION"
    )
    mode: Mode = option(
        "forward: the function as it is. train: a loss, its gradient, and the "
        "transfers of both.",
        default=Mode.forward,
    )
    gbps: float = option("Link bandwidth in Gbit/s.", default=10.0)
    latency_us: float = option("Latency of each message in us.", default=50.0)
    tflops: float = option("Speed of a device in Tflop/s.", default=10.0)
    memory_gbs: float = option("Memory bandwidth of a device in GB/s.", default=500.0)
    random_orders: int = option(
        "Number of random orders to compare with.",
        default=100,
        min=1,
        max=int(DRAWS.most),
    )
    as_json: bool = option("Print only JSON.", "--json", default=False)
    trace: Path | None = option("Save the best order's Chrome trace here.")
    png: Path | None = option("Draw the best order's timeline here.")


@takes(OrderOptions)
def order(options: OrderOptions) -> None:
    """Order the transfers of a function's params; bound the makespan.

    The function is called as FUNCTION(params, ...) and is only traced: nothing is
    computed. Its example arguments come from FUNCTION_args() in the same file, else
    from the defaults of its parameters, else from example_args(); these functions
    return (params, ...), arrays or jax.ShapeDtypeStruct.
    """
    latency, bandwidth = options.latency_us * 1e-6, options.gbps * 1e9 / 8
    flops, memory = options.tflops * 1e12, options.memory_gbs * 1e9
    try:
        link = schedule.Link(latency=latency, bandwidth=bandwidth)
        device = schedule.Device(flops=flops, bandwidth=memory)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    graph = _graph(options.target, options.mode, link, device)
    report = _report(graph, options.target, options.random_orders)
    if options.as_json:
        typer.echo(json.dumps(report))
    else:
        _order_tables.show(report)
    if options.trace or options.png:
        policy = schedule.ordered("best", report["orders"]["best"])
        run = schedule.simulate(graph, policy, schedule.Cluster(link=link))
        _save(run, options.trace, options.png)


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

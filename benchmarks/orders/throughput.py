"""Figure 3: what an order is worth in simulated training with parameter servers.

Straggler effect, as TicTac has it: how long the fastest worker waits for the slowest,
as a share of the slowest one's step.

Conditions. "whole": every parameter on one server, the largest first to the least
loaded, as TensorFlow's greedy load balancing places variables. "sliced": every
parameter in slices of at most 4 096 000 bytes that go round the servers, as BytePS cuts
them and TensorFlow's partitioners do on demand; with and without an order alike.
"fine": whole, but links are shared in turns of 250 kB and not of 2 MB, which shows the
part of the straggler effect that is only the grain of the simulation. The latter two
are run with several servers.
"""

import dataclasses
from statistics import mean, pstdev
from typing import Annotated, Any, NamedTuple

import typer

from benchmarks.models import MODELS, ImageModel
from benchmarks.orders.neighbors import NOISE, neighbors, neighbors_table
from benchmarks.orders.quality import at_ratio
from benchmarks.report import Plot, Result, Run, Table, benchmark
from relaxjax import schedule
from relaxjax.schedule import Cluster, Graph, Link, Policy, Timeline


class Regime(NamedTuple):
    """A cluster and how parameters travel on it.

    Attributes:
      condition: "whole", "sliced" or "fine".
      workers: number of workers.
      servers: number of servers.
    """

    condition: str
    workers: int
    servers: int


RHOS = (0.5, 1.0, 2.0)
SEVERAL = ((8, 2), (8, 4), (16, 4))
SETTINGS = (
    *(Regime("whole", w, s) for w, s in ((1, 1), (2, 1), (4, 1), (8, 1), (16, 1))),
    *(Regime("whole", w, s) for w, s in SEVERAL),
    *(Regime("sliced", w, s) for w, s in SEVERAL),
    *(Regime("fine", w, s) for w, s in SEVERAL),
)
SLICE, FINE = 4_096_000, 2.5e5
LINK = Link(latency=0.0, bandwidth=1.25e9)
FALL = 2.3
"""The factor by which the straggler effect is to fall: TicTac reports up to 2.3."""
COMPARED = {name: MODELS[name] for name in ("vgg16", "inception", "resnet50")}
"""Models by name; the last also runs under the neighbors' policies."""


@benchmark("throughput", family="orders")
def throughput(
    run: Run,
    random_orders: Annotated[
        int, typer.Option(min=1, help="Random orders behind each mean, at least.")
    ] = 100,
) -> Result:
    """Gain over the mean of random orders, stragglers, and the neighbors' policies.

    Each worker has a random order of its own in every step.
    """
    graphs = {(n, k): KINDS[k](make()) for n, make in COMPARED.items() for k in KINDS}
    rows: list[dict[str, Any]] = [
        {"model": name, "graph": kind}
        | _compare(at_ratio(graph, rho), rho, setting, random_orders)
        for (name, kind), graph in graphs.items()
        for rho in RHOS
        for setting in SETTINGS
    ]
    last, falls = [*COMPARED][-1], _falls(rows)
    result = {
        "conditions": run.conditions(
            seed=0,
            rho="seconds of all pulls and pushes on one link over computation",
            links="the same rate for workers and servers, one link each way",
            jitter="log-normal, sigma 0.01, for each worker and step",
            graphs="condensed; training: forward, backward, a push per parameter",
            sliced=f"slices of at most {SLICE} bytes, round the servers",
            fine=f"turns of {FINE:g} bytes; else of {Cluster().segment_bytes:g}",
        ),
        "rows": rows,
        "stragglers": falls,
        "neighbors": neighbors(graphs[last, "training"]),
    }
    lines: dict[str, tuple[list[int], list[float]]] = {}
    for row in rows:
        if (row["model"], row["condition"], row["servers"]) == (last, "whole", 1):
            x, y = lines.setdefault(f"{row['graph']}, rho {row['rho']}", ([], []))
            x.append(row["workers"])
            y.append(100 * (row["tac"] - 1))
    columns = ("", "clusters", f"fell {FALL} times", "without", "tac", "fixed")
    title = f"{last}, one server: TAC over the mean random order"
    return run.finish(
        result,
        tables=[
            _table(rows),
            Table(
                "Straggler effect",
                columns,
                [(n, *f.values()) for n, f in falls.items()],
            ),
            neighbors_table(result["neighbors"]),
        ],
        plots=[Plot(title, ("workers", "gain in throughput, %"), lines)],
    )


def _training_graph(model: ImageModel) -> Graph:
    graph = Graph.from_loss(model.loss, model.params, *model.args, link=LINK)
    return schedule.condensed(graph)


def _inference_graph(model: ImageModel) -> Graph:
    graph = Graph.from_function(model.apply, model.params, *model.args, link=LINK)
    return schedule.condensed(graph)


KINDS = {"inference": _inference_graph, "training": _training_graph}


def _compare(graph: Graph, rho: float, setting: Regime, orders: int) -> dict[str, Any]:
    """Throughput of each order over that of random orders, on one cluster."""
    steps = max(12, orders // setting.workers)
    loose = _run(graph, schedule.unordered(), setting, steps)
    times = [max(step) for step in loose.step_times()]
    row: dict[str, Any] = {
        "rho": rho,
        **setting._asdict(),
        "seconds": mean(times),
        "spread": pstdev(times) / mean(times),
        "distinct": _distinct(loose) / (steps * setting.workers),
        "straggler": loose.straggler_effect(),
    }
    candidates = {
        "tic": schedule.tic(graph),
        "tac": schedule.tac(graph),
        "fixed": schedule.random_order(graph, seed=1),
    }
    for label, order in candidates.items():
        tight = _run(graph, schedule.ordered(label, order), setting, 4)
        row[label] = row["seconds"] / mean(max(t) for t in tight.step_times())
        row[f"straggler {label}"] = tight.straggler_effect()
    return row


def _run(graph: Graph, policy: Policy, setting: Regime, steps: int) -> Timeline:
    nbytes = sum(graph.nbytes.values())
    link = Link(latency=0.0, bandwidth=nbytes / graph.communication)
    cluster = Cluster(setting.workers, setting.servers, link, stragglers=NOISE)
    if setting.condition == "sliced":
        policy = dataclasses.replace(policy, partition_bytes=SLICE)
    if setting.condition == "fine":
        cluster = dataclasses.replace(cluster, segment_bytes=FINE)
    return schedule.simulate(graph, policy, cluster, steps=steps)


def _distinct(run: Timeline) -> int:
    """The number of different orders that the workers saw over all steps."""
    orders: dict[tuple[int, int], list[str]] = {}
    for span in run.spans:
        if span.track.startswith("worker") and span.track.endswith(" in"):
            orders.setdefault((span.worker, span.step), []).append(span.name)
    return len({tuple(order) for order in orders.values()})


def _falls(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """The number of clusters whose straggler effect falls, by condition and servers."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row["workers"] > 1:
            servers = "one server" if row["servers"] == 1 else "several servers"
            groups.setdefault(f"{servers}, {row['condition']}", []).append(row)
    return {
        name: {
            "clusters": len(group),
            "fell": sum(r["straggler"] >= FALL * r["straggler tac"] for r in group),
            "without": mean(row["straggler"] for row in group),
            "tac": mean(row["straggler tac"] for row in group),
            "fixed": mean(row["straggler fixed"] for row in group),
        }
        for name, group in groups.items()
    }


def _table(rows: list[dict[str, Any]]) -> Table:
    keys = ("model", "graph", "rho", "condition", "workers", "servers", "seconds")
    keys = (*keys, "spread", "distinct")
    gains = ("tic", "tac", "fixed")
    stragglers = ("straggler", "straggler tac", "straggler fixed")
    cells = [
        [
            *(row[k] for k in keys),
            *(f"{100 * (row[k] - 1):+.1f} %" for k in gains),
            *(row[k] for k in stragglers),
        ]
        for row in rows
    ]
    columns = (*keys, *gains, *stragglers)
    return Table("Throughput over the mean random order", columns, cells)

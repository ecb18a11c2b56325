"""Figure 3: what an order is worth in simulated training with parameter servers.

Straggler effect, as TicTac has it: how long the fastest worker waits for the slowest,
as a share of the slowest one's step.

Conditions. "whole": every parameter on one server, the largest first to the least
loaded, as TensorFlow's greedy load balancing places variables. "sliced": every
parameter in slices of at most 4 096 000 bytes that go round the servers, as BytePS cuts
them and TensorFlow's partitioners do on demand; with and without an order alike.
"fine": whole, but links are shared in turns of 250 kB and not of 2 MB: what of the
straggler effect is only the grain of the simulation. The two latter are run with
several servers.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from statistics import mean, pstdev
from typing import Any, NamedTuple

from benchmarks.models import CNNS, MODELS, Model
from benchmarks.orders.neighbors import NOISE, neighbors, show_neighbors
from benchmarks.orders.quality import at_ratio
from benchmarks.report import conditions, plot, save, show
from relaxjax import schedule
from relaxjax.schedule import Cluster, Graph, Link, Policy, Timeline


class Setting(NamedTuple):
    """A cluster and how parameters travel on it.

    Attributes:
        condition: "whole", "sliced" or "fine".
        workers: how many.
        servers: how many.
    """

    condition: str
    workers: int
    servers: int


RHOS = (0.5, 1.0, 2.0)
SEVERAL = ((8, 2), (8, 4), (16, 4))
SETTINGS = (
    *(Setting("whole", w, s) for w, s in ((1, 1), (2, 1), (4, 1), (8, 1), (16, 1))),
    *(Setting("whole", w, s) for w, s in SEVERAL),
    *(Setting("sliced", w, s) for w, s in SEVERAL),
    *(Setting("fine", w, s) for w, s in SEVERAL),
)
SLICE, FINE = 4_096_000, 2.5e5
LINK = Link(latency=0.0, bandwidth=1.25e9)
FALL = 2.3
"""By which factor the straggler effect is to fall: TicTac reports up to 2.3."""


def throughput(
    *,
    orders: int = 100,
    models: Mapping[str, Callable[[], Model]] | None = None,
    rhos: Sequence[float] = RHOS,
    settings: Sequence[Setting] = SETTINGS,
    out: str = "runs/orders",
) -> dict[str, Any]:
    """Gain over the mean of random orders, stragglers, and the neighbors' policies.

    Args:
        orders: at least so many random orders are behind each mean: every worker has
            one of its own in every step.
        models: by name; the last is also run under the neighbors' policies. By
            default the convolutional ones, ResNet-50 last.
        rhos: communication over computation.
        settings: clusters and conditions.
        out: folder of the JSON and the plot.

    Returns:
        Conditions and one row for each model, rho and setting.
    """
    models = models or {name: MODELS[name] for name in sorted(CNNS, key=_last)}
    graphs = {(n, k): KINDS[k](make()) for n, make in models.items() for k in KINDS}
    rows: list[dict[str, Any]] = [
        {"model": name, "graph": kind}
        | _compare(at_ratio(graph, rho), rho, setting, orders)
        for (name, kind), graph in graphs.items()
        for rho in rhos
        for setting in settings
    ]
    chosen = [*models][-1]
    result = {
        "conditions": _conditions(orders),
        "rows": rows,
        "stragglers": _falls(rows),
        "neighbors": neighbors(graphs[chosen, "training"]),
    }
    _print(result)
    _plot(result, chosen, out)
    return result


def _conditions(orders: int) -> dict[str, Any]:
    return conditions(
        random_orders=orders,
        seed=0,
        rho="seconds of all pulls and pushes on one link over computation",
        links="the same rate for workers and servers, one link each way",
        jitter="log-normal, sigma 0.01, for each worker and step",
        graphs="condensed; training: forward, backward, a push per parameter",
        sliced=f"slices of at most {SLICE} bytes, round the servers",
        fine=f"turns of {FINE:g} bytes; else of {Cluster().segment_bytes:g}",
    )


def _last(name: str) -> bool:
    return name == "resnet50"


def _training_graph(model: Model) -> Graph:
    graph = Graph.from_loss(model.loss, model.params, *model.args, link=LINK)
    return schedule.condensed(graph)


def _inference_graph(model: Model) -> Graph:
    graph = Graph.from_function(model.apply, model.params, *model.args, link=LINK)
    return schedule.condensed(graph)


KINDS = {"inference": _inference_graph, "training": _training_graph}


def _compare(graph: Graph, rho: float, setting: Setting, orders: int) -> dict[str, Any]:
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


def _run(graph: Graph, policy: Policy, setting: Setting, steps: int) -> Timeline:
    nbytes = sum(graph.nbytes.values())
    link = Link(latency=0.0, bandwidth=nbytes / graph.communication)
    cluster = Cluster(setting.workers, setting.servers, link, stragglers=NOISE)
    if setting.condition == "sliced":
        policy = dataclasses.replace(policy, partition_bytes=SLICE)
    if setting.condition == "fine":
        cluster = dataclasses.replace(cluster, segment_bytes=FINE)
    return schedule.simulate(graph, policy, cluster, steps=steps)


def _distinct(run: Timeline) -> int:
    """How many different orders the workers saw over all steps."""
    orders: dict[tuple[int, int], list[str]] = {}
    for span in run.spans:
        if span.track.startswith("worker") and span.track.endswith(" in"):
            orders.setdefault((span.worker, span.step), []).append(span.name)
    return len({tuple(order) for order in orders.values()})


def _falls(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """How often the straggler effect falls, by condition and number of servers."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row["workers"] > 1:
            servers = "one server" if row["servers"] == 1 else "several servers"
            groups.setdefault(f"{servers}, {row['condition']}", []).append(row)
    return {
        name: {
            "clusters": len(own),
            "fell": sum(r["straggler"] >= FALL * r["straggler tac"] for r in own),
            "without": mean(row["straggler"] for row in own),
            "tac": mean(row["straggler tac"] for row in own),
            "fixed": mean(row["straggler fixed"] for row in own),
        }
        for name, own in groups.items()
    }


def _plot(result: dict[str, Any], model: str, out: str) -> None:
    lines: dict[str, tuple[list[int], list[float]]] = {}
    for row in result["rows"]:
        if (row["model"], row["condition"], row["servers"]) == (model, "whole", 1):
            x, y = lines.setdefault(f"{row['graph']}, rho {row['rho']}", ([], []))
            x.append(row["workers"])
            y.append(100 * (row["tac"] - 1))
    plot(
        save(result, out, "throughput"),
        f"{model}, one server: TAC over the mean random order",
        ("workers", "gain in throughput, %"),
        lines,
    )


def _print(result: dict[str, Any]) -> None:
    keys = ("model", "graph", "rho", "condition", "workers", "servers", "seconds")
    keys = (*keys, "spread", "distinct")
    gains = ("tic", "tac", "fixed")
    stragglers = ("straggler", "straggler tac", "straggler fixed")
    rows = [
        [
            *(row[k] for k in keys),
            *(f"{100 * (row[k] - 1):+.1f} %" for k in gains),
            *(row[k] for k in stragglers),
        ]
        for row in result["rows"]
    ]
    show("Throughput over the mean random order", (*keys, *gains, *stragglers), rows)
    falls = [(name, *found.values()) for name, found in result["stragglers"].items()]
    columns = ("clusters", "", f"fell {FALL} times", "without", "tac", "fixed")
    show("Straggler effect", (columns[1], columns[0], *columns[2:]), falls)
    show_neighbors(result["neighbors"])
    print(result["conditions"])

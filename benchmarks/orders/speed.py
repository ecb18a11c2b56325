"""Figure 2: how long it takes to find an order."""

import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any

import jax

from benchmarks.models import Transformer, transformer
from benchmarks.report import conditions, plot, save, show
from relaxjax import schedule
from relaxjax.schedule import Graph

SIZES = (1250, 2500, 5000, 10_000)


def speed(
    *,
    repeats: int = 5,
    sizes: Sequence[int] = SIZES,
    layers: int = 24,
    out: str = "runs/orders",
) -> dict[str, Any]:
    """Seconds of TIC and TAC against the number of operations, and of tracing.

    Args:
        repeats: the median of so many runs, with the smallest and the largest.
        sizes: numbers of operations, by rising size; a tenth as many recvs.
        layers: of the transformer that is traced.
        out: folder of the JSON and the plot.

    Returns:
        Conditions, seconds and the targets.
    """
    rows = [
        row
        for shape in ("layered", "tangled")
        for ops in sizes
        for row in _orders(shape, ops, ops // 10, repeats)
    ]
    # At a fixed number of transfers: what the operations alone cost.
    most = sizes[-1] // 20
    for ops in sizes:
        _, tac = _orders("layered", ops, most, repeats)
        rows.append({**tac, "shape": f"{most} recvs"})
    traced = _tracing(repeats, layers)
    result = {"conditions": conditions(repeats=repeats, seed=0), "rows": rows}
    result |= {"from_function": traced, "targets": _targets(rows, traced, sizes)}
    _print(result)
    lines = {
        f"{order}, {shape}": (
            list(sizes),
            [r["median"] for r in rows if (r["order"], r["shape"]) == (order, shape)],
        )
        for order in ("tic", "tac")
        for shape in ("layered", "tangled")
    }
    plot(save(result, out, "speed"), "Time to order", ("operations", "s"), lines)
    return result


def _orders(shape: str, ops: int, recvs: int, repeats: int) -> list[dict[str, Any]]:
    """A row for TIC and a row for TAC."""
    graph = large_graph(shape, ops, recvs=recvs)
    size = {"ops": ops, "recvs": recvs, "sets": len(set(graph.masks.values()))}
    return [
        {
            "shape": shape,
            "order": name,
            **size,
            **_timed(partial(order, graph), repeats),
        }
        for name, order in (("tic", schedule.tic), ("tac", schedule.tac))
    ]


def _print(result: dict[str, Any]) -> None:
    columns = ("shape", "order", "ops", "recvs", "median s", "min s", "max s")
    keys = ("shape", "order", "ops", "recvs", "median", "min", "max")
    rows = [[row[k] for k in keys] for row in result["rows"]]
    show("Seconds to order", columns, rows)
    traced = result["from_function"].items()
    rows = [(name, t["median"], t["ops"]) for name, t in traced]
    show("Seconds to trace", ("function", "median s", "ops"), rows)
    show("Targets", ("target", "measured"), list(result["targets"].items()))
    print(result["conditions"])


def large_graph(shape: str, ops: int, *, recvs: int, seed: int = 0) -> Graph:
    """A graph with many operations.

    Args:
        shape: "layered", a chain as in a network; "tangled", where each operation
            needs two random recvs and a random earlier operation.
        ops: how many operations.
        recvs: how many recvs.
        seed: of times and needs.
    """
    rng = random.Random(seed)
    names = [f"r{i}" for i in range(recvs)]
    needs: dict[str, list[str]] = {}
    for i in range(ops):
        if shape == "layered":
            before = [f"o{i - 1}"] if i else []
            needs[f"o{i}"] = [*before, names[i * recvs // ops]]
        else:
            before = [f"o{rng.randrange(i)}"] if i else []
            needs[f"o{i}"] = [*before, *rng.sample(names, 2)]
    return Graph(
        recvs={name: rng.uniform(1.0, 20.0) for name in names},
        ops={name: (rng.uniform(1.0, 20.0), n) for name, n in needs.items()},
    )


def _timed(
    call: Callable[[], Any], repeats: int, before: Callable[[], Any] = lambda: None
) -> dict[str, float]:
    seconds = []
    for _ in range(repeats):
        before()
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return {"median": median(seconds), "min": min(seconds), "max": max(seconds)}


def _tracing(repeats: int, layers: int) -> dict[str, dict[str, float]]:
    """Seconds from a function to its graph, JAX's own trace included."""
    model = transformer(Transformer(layers=layers, width=1024))
    calls: dict[str, Callable[[], Graph]] = {
        "forward": lambda: Graph.from_function(model.apply, model.params, *model.args),
        "train": lambda: Graph.from_loss(model.loss, model.params, *model.args),
    }
    return {
        name: {**_timed(call, repeats, jax.clear_caches), "ops": len(call().ops)}
        for name, call in calls.items()
    }


def _targets(
    rows: list[dict[str, Any]], traced: dict[str, Any], sizes: Sequence[int]
) -> dict[str, float]:
    """The targets are for 5000 operations and 24 layers."""
    at = {(r["order"], r["shape"], r["ops"]): r["median"] for r in rows}
    ops = 5000 if 5000 in sizes else sizes[-1]
    fixed = rows[-1]["shape"]
    growth = at["tac", fixed, sizes[-1]] / at["tac", fixed, sizes[0]]
    return {
        f"TIC, {ops} operations, layered or tangled (<= 0.2 s)": max(
            at["tic", "layered", ops], at["tic", "tangled", ops]
        ),
        "TAC, layered (<= 2 s)": at["tac", "layered", ops],
        "TAC, tangled (<= 2 s)": at["tac", "tangled", ops],
        "from_function (<= 10 s)": traced["forward"]["median"],
        "from_loss": traced["train"]["median"],
        f"TAC at {fixed}: times {sizes[-1] / sizes[0]:g} operations, seconds": growth,
    }

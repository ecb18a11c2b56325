"""Figure 2: how long it takes to find an order."""

import random
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import jax

from relaxjax import schedule
from relaxjax.bench._report import conditions, plot, save, show
from relaxjax.bench._zoo import Transformer, transformer
from relaxjax.schedule import Graph

SIZES = (1250, 2500, 5000, 10_000)


def speed(*, repeats: int = 5, out: str = "runs/orders") -> dict[str, Any]:
    """Seconds of TIC and TAC against the number of operations, and of tracing.

    Args:
        repeats: the median of so many runs, with the smallest and the largest.
        out: folder of the JSON and the plot.

    Returns:
        Conditions, seconds and the targets.
    """
    rows = []
    for shape in ("layered", "tangled"):
        for ops in SIZES:
            graph = large_graph(shape, ops, recvs=ops // 10)
            for name, order in (("tic", schedule.tic), ("tac", schedule.tac)):
                rows.append(
                    {
                        "shape": shape,
                        "ops": ops,
                        "recvs": ops // 10,
                        "sets": len(set(graph.masks.values())),
                        "order": name,
                        **_timed(
                            lambda order=order, graph=graph: order(graph), repeats
                        ),
                    }
                )
    # At a fixed number of transfers: what the operations alone cost.
    for ops in SIZES:
        graph = large_graph("layered", ops, recvs=500)
        timed = _timed(lambda graph=graph: schedule.tac(graph), repeats)
        rows.append(
            {"shape": "500 recvs", "ops": ops, "recvs": 500, "order": "tac", **timed}
        )
    traced = _tracing(repeats)
    result = {"conditions": conditions(repeats=repeats, seed=0), "rows": rows}
    result |= {"from_function": traced, "targets": _targets(rows, traced)}
    columns = ("shape", "order", "ops", "recvs", "median s", "min s", "max s")
    keys = ("shape", "order", "ops", "recvs", "median", "min", "max")
    show("Seconds to order", columns, [[row[k] for k in keys] for row in rows])
    show("24 layers", ("function", "median s", "ops"), [
        (name, t["median"], t["ops"]) for name, t in traced.items()
    ])  # fmt: skip
    show("Targets", ("target", "measured"), list(result["targets"].items()))
    print(result["conditions"])
    lines = {
        f"{order}, {shape}": (
            list(SIZES),
            [r["median"] for r in rows if (r["order"], r["shape"]) == (order, shape)],
        )
        for order in ("tic", "tac")
        for shape in ("layered", "tangled")
    }
    plot(save(result, out, "speed"), "Time to order", ("operations", "s"), lines)
    return result


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


def _tracing(repeats: int) -> dict[str, dict[str, float]]:
    """Seconds from a function to its graph, JAX's own trace included."""
    model = transformer(Transformer(layers=24, width=1024))
    calls: dict[str, Callable[[], Graph]] = {
        "forward": lambda: Graph.from_function(model.apply, model.params, *model.args),
        "train": lambda: Graph.from_loss(model.loss, model.params, *model.args),
    }
    return {
        name: {**_timed(call, repeats, jax.clear_caches), "ops": len(call().ops)}
        for name, call in calls.items()
    }


def _targets(rows: list[dict[str, Any]], traced: dict[str, Any]) -> dict[str, float]:
    at = {(r["order"], r["shape"], r["ops"]): r["median"] for r in rows}
    return {
        "TIC, 5000 ops, 500 recvs, layered / tangled (<= 0.2 s)": max(
            at["tic", "layered", 5000], at["tic", "tangled", 5000]
        ),
        "TAC, layered (<= 2 s)": at["tac", "layered", 5000],
        "TAC, tangled (<= 2 s)": at["tac", "tangled", 5000],
        "from_function, 24 layers (<= 10 s)": traced["forward"]["median"],
        "from_loss, 24 layers": traced["train"]["median"],
        "TAC at 500 recvs: seconds for 10000 ops over 1250 (8 is linear)": at[
            "tac", "500 recvs", 10_000
        ]
        / at["tac", "500 recvs", 1250],
    }

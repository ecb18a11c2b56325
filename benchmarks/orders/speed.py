"""Figure 2: how long it takes to find an order."""

import random
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Annotated, Any

import jax
import typer

from benchmarks.models import Transformer, transformer
from benchmarks.report import Plot, Result, Run, Table, benchmark
from relaxjax import schedule
from relaxjax.schedule import Graph

SIZES = (1250, 2500, 5000, 10_000)
"""Numbers of operations; there are a tenth as many recvs."""


@benchmark("speed", family="orders")
def speed(
    run: Run,
    repeats: Annotated[
        int, typer.Option(min=1, help="Runs, of which the median counts.")
    ] = 5,
    layers: Annotated[
        int, typer.Option(min=1, help="Layers of the transformer that is traced.")
    ] = 24,
) -> Result:
    """Seconds of TIC and TAC against the number of operations, and of tracing."""
    shapes = ("layered", "tangled")
    rows = [
        row
        for shape in shapes
        for ops in SIZES
        for row in _orders(shape, ops, ops // 10, repeats)
    ]
    # At a fixed number of transfers: what the operations alone cost.
    most = SIZES[-1] // 20
    for ops in SIZES:
        _, tac = _orders("layered", ops, most, repeats)
        rows.append({**tac, "shape": f"{most} recvs"})
    traced = _tracing(repeats, layers)
    targets = _targets(rows, traced)
    keys = ("median", "min", "max")
    headings = [(f"{key} s", key) for key in keys]
    tracing = [(name, t["median"], t["ops"]) for name, t in traced.items()]
    lines = {
        f"{order}, {shape}": (
            SIZES,
            [r["median"] for r in rows if (r["order"], r["shape"]) == (order, shape)],
        )
        for order in ("tic", "tac")
        for shape in shapes
    }
    result = {"conditions": run.conditions(seed=0), "rows": rows}
    return run.finish(
        result | {"from_function": traced, "targets": targets},
        tables=[
            Table.of(
                "Seconds to order", rows, "shape", "order", "ops", "recvs", *headings
            ),
            Table("Seconds to trace", ("function", "median s", "ops"), tracing),
            Table("Targets", ("target", "measured"), list(targets.items())),
        ],
        plots=[Plot("Time to order", ("operations", "s"), lines)],
    )


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


def large_graph(shape: str, ops: int, *, recvs: int, seed: int = 0) -> Graph:
    """A graph with many operations.

    Args:
      shape: "layered", a chain as in a network; "tangled", where each operation needs
        two random recvs and a random earlier operation.
      ops: number of operations.
      recvs: number of recvs.
      seed: seed of the times and needs.
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


def _targets(rows: list[dict[str, Any]], traced: dict[str, Any]) -> dict[str, float]:
    """The targets are for 5000 operations and 24 layers."""
    at = {(r["order"], r["shape"], r["ops"]): r["median"] for r in rows}
    ops = 5000 if 5000 in SIZES else SIZES[-1]
    fixed = rows[-1]["shape"]
    growth = at["tac", fixed, SIZES[-1]] / at["tac", fixed, SIZES[0]]
    return {
        f"TIC, {ops} operations, layered or tangled (<= 0.2 s)": max(
            at["tic", "layered", ops], at["tic", "tangled", ops]
        ),
        "TAC, layered (<= 2 s)": at["tac", "layered", ops],
        "TAC, tangled (<= 2 s)": at["tac", "tangled", ops],
        "from_function (<= 10 s)": traced["forward"]["median"],
        "from_loss": traced["train"]["median"],
        f"TAC at {fixed}: times {SIZES[-1] / SIZES[0]:g} operations, seconds": growth,
    }

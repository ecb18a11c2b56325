"""What is done once, before a training, as work grows: leaves, workers, parameters.

    exponent = log(t / t') / log(n / n')        of the last two sizes

of the seconds t of `init`, of tracing and lowering a train step, of `wire_bytes` and of
`plan.rank`. At most 1 is linear. Each is measured in a process that has done the
smallest size before; nothing is compiled but what `init` itself runs.
"""

import math
import time
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import jax
import numpy as np
import optax
import typer

import relaxjax
from benchmarks.report import Plot, Result, Run, Table, benchmark
from relaxjax import compression, plan, schedule, topology

LEAVES, WORKERS = (10, 100, 1000, 10_000), (2, 16, 128, 1024, 4096)
PARAMETERS = (10**5, 10**7, 10**9)
SIDE = 8  # of each leaf where leaves grow
_EIGHT = compression.error_feedback(compression.quantize(8))
_SGD = optax.sgd(0.1)


def _then_sgd(reducer: optax.GradientTransformation) -> optax.GradientTransformation:
    return optax.chain(reducer, _SGD)


METHODS: dict[str, Callable[[int], optax.GradientTransformation]] = {
    "all_reduce": lambda n: _then_sgd(relaxjax.all_reduce("data")),
    "8 bits": lambda n: _then_sgd(relaxjax.all_reduce("data", compressor=_EIGHT)),
    "power_sgd": lambda n: _then_sgd(relaxjax.power_sgd("data", rank=2)),
    "gossip": lambda n: optax.chain(
        _SGD, relaxjax.gossip("data", topology.one_peer_exponential(n))
    ),
    "diloco": lambda n: relaxjax.diloco(_SGD, "data", sync_every=4),
}
Repeats = Annotated[int, typer.Option(min=1, help="Times that each is measured.")]
Most = Annotated[int, typer.Option(min=2, help="The largest size.")]
Times = dict[str, float]  # seconds by part


@benchmark("growth")
def growth(
    run: Run,
    most_leaves: Most = LEAVES[-1],
    most_workers: Most = WORKERS[-1],
    repeats: Repeats = 3,
) -> Result:
    """Seconds of init, tracing, counting and planning, as work grows."""
    seconds: dict[str, dict[str, dict[int, Times]]] = {}
    result = {"conditions": run.conditions(leaf=[SIDE, SIDE]), "seconds": seconds}
    for kind, name, sizes, of_size in _series(most_leaves, most_workers):
        of_size(sizes[0])  # warms up
        row = seconds.setdefault(kind, {}).setdefault(name, {})
        for size in sizes:
            times = [of_size(size) for _ in range(repeats)]
            row[size] = {p: float(np.median([t[p] for t in times])) for p in times[0]}
            run.save(result)
    exponents = {
        kind: {name: _exponents(row) for name, row in rows.items()}
        for kind, rows in seconds.items()
    }
    return run.finish(
        result | {"exponents": exponents, "target": "exponents of at most 1"},
        tables=[_table(kind, rows) for kind, rows in seconds.items()],
        plots=[_plot(kind, rows) for kind, rows in seconds.items()],
    )


def _series(
    most_leaves: int, most_workers: int
) -> Iterator[tuple[str, str, list[int], Callable[[int], Times]]]:
    """What grows, in which method, over which sizes, and how one size is timed."""
    leaves = [n for n in LEAVES if n <= most_leaves]
    workers = [n for n in WORKERS if n <= most_workers]
    for name, method in METHODS.items():
        yield "leaves", name, leaves, lambda n, m=method: _method(m(8), n, 8)
        yield "workers", name, workers, lambda n, m=method: _method(m(n), 10, n)
    for name, method in METHODS.items():
        yield "parameters", name, [*PARAMETERS], lambda n, m=method: _counted(m(8), n)
    yield "workers", "plan", workers, lambda n: _planned(125_000_000, n)
    yield "parameters", "plan", [*PARAMETERS], lambda n: _planned(n, 64)


def _method(tx: optax.GradientTransformation, leaves: int, workers: int) -> Times:
    """Seconds of `init`, of tracing a step, and of `wire_bytes`."""
    mesh = relaxjax.emulate(workers)
    params = {f"w{i}": np.ones((SIDE, SIDE), np.float32) for i in range(leaves)}

    def step(params: Any, opt_state: Any, batch: Any) -> Any:
        grads = jax.tree.map(lambda w: w * batch, params)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, {}

    started = time.perf_counter()
    state = jax.block_until_ready(relaxjax.init(tx, params, mesh))
    made = time.perf_counter()
    relaxjax.data_parallel(step, mesh).lower(*state, np.ones(workers, np.float32))
    traced = time.perf_counter()
    relaxjax.wire_bytes(tx, params, mesh, steps=1)
    ends = (started, made, traced, time.perf_counter())
    parts = ("init", "trace", "wire_bytes")
    return dict(zip(parts, np.diff(ends).tolist(), strict=True))


def _counted(tx: optax.GradientTransformation, parameters: int) -> Times:
    """Seconds of `wire_bytes` of shapes, in 12 square matrices."""
    side = math.isqrt(parameters // 12)
    shape = jax.ShapeDtypeStruct((side, side), np.float32)
    started = time.perf_counter()
    params = {f"w{i}": shape for i in range(12)}
    relaxjax.wire_bytes(tx, params, relaxjax.emulate(8), steps=1)
    return {"wire_bytes": time.perf_counter() - started}


def _planned(parameters: int, workers: int) -> Times:
    network = plan.Network(workers=workers, link=schedule.Link(1e-4, 1.25e9))
    started = time.perf_counter()
    plan.rank(plan.Model.of_size(parameters, compute=0.1), network)
    return {"plan": time.perf_counter() - started}


def _exponents(row: dict[int, Times]) -> Times:
    """How each part grows over the last two sizes."""
    if len(row) < 2:
        return {}
    (n, before), (m, after) = list(row.items())[-2:]
    return {p: math.log(after[p] / before[p]) / math.log(m / n) for p in after}


def _table(kind: str, rows: dict[str, dict[int, Times]]) -> Table:
    sizes = sorted({size for row in rows.values() for size in row})
    cells = [
        (f"{name}: {part}", *(row[n][part] if n in row else "" for n in sizes), power)
        for name, row in rows.items()
        for part, power in _exponents(row).items()
    ]
    columns = ("seconds", *map(str, sizes), "exponent")
    return Table(f"As {kind} grow", columns, cells)


def _plot(kind: str, rows: dict[str, dict[int, Times]]) -> Plot:
    lines = {
        name: ([*row], [sum(times.values()) for times in row.values()])
        for name, row in rows.items()
    }
    return Plot(f"Setting up, as {kind} grow", (kind, "seconds"), lines, f"_{kind}")

"""What it costs to count bytes: `wire_bytes` traces one update and runs nothing.

A decoder of 12 layers (197 leaves, figure 3), JAX's caches cleared before each count.
The yardstick, in the same run, is a trace of the gradient itself.
"""

from functools import partial
from typing import Annotated

import jax
import numpy as np
import typer
from jax.sharding import Mesh

from benchmarks.measure import interleaved, quartiles
from benchmarks.models import Transformer, transformer
from benchmarks.report import Plot, Result, Rounds, Run, Table, benchmark
from relaxjax import all_reduce, wire_bytes
from relaxjax.collectives import EXACT_EXCHANGES

WORKERS = 8
TARGET = 0.5  # seconds
ONE_AXIS = [name for name in EXACT_EXCHANGES if name != "hierarchical"]


@benchmark("bytes", devices=WORKERS)
def count_bytes(
    run: Run,
    rounds: Rounds = 9,
    layers: Annotated[int, typer.Option(min=1, help="Layers of the decoder.")] = 12,
) -> Result:
    """How long wire_bytes takes to count what a 12-layer transformer sends."""
    model = transformer(Transformer(layers))
    mesh = Mesh(np.asarray(jax.devices()[:WORKERS]), ("data",))
    sent: dict[str, int] = {}

    def count(algorithm: str) -> None:
        jax.clear_caches()
        tx = all_reduce("data", algorithm=algorithm)
        sent[algorithm] = wire_bytes(tx, model.params, mesh)

    def trace_gradient() -> None:
        jax.clear_caches()
        jax.make_jaxpr(jax.grad(model.loss))(model.params, *model.args)

    runs = {"gradient": trace_gradient, **{a: partial(count, a) for a in ONE_AXIS}}
    seconds = interleaved(runs, rounds)
    times = {name: quartiles(s) for name, s in seconds.items()}
    columns = ("traced", "lower s", "median s", "upper s", "bytes")
    cells = [(name, *times[name], sent.get(name, "")) for name in times]
    names, gradient = list(sent), times["gradient"][1]
    lines = {
        "wire_bytes": (names, [times[name][1] for name in names]),
        "trace of the gradient": (names, [gradient] * len(names)),
    }
    known = {"workers": WORKERS, "leaves": len(jax.tree.leaves(model.params))}
    result = {"conditions": run.conditions(**known), "seconds": seconds, "bytes": sent}
    return run.finish(
        result | {"target": TARGET},
        tables=[Table("Counting bytes", columns, cells)],
        notes=[f"target: median <= {TARGET} s"],
        plots=[Plot("Counting bytes", ("algorithm", "seconds"), lines)],
    )

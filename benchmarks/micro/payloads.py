"""Bytes of every compressor by every exchange, from compiled programs.

The program of one update of one leaf on emulated devices is compiled, and the bytes
that its busiest device sends are set against those of a float32 ring over that leaf.
"""

import math
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import typer
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from benchmarks.report import Plot, Result, Run, Table, benchmark
from relaxjax import all_reduce, compiled_wire_bytes
from relaxjax.collectives import ALGORITHMS, ring_wire_bytes
from relaxjax.compression import COMPRESSORS, Compressor

WORKERS = (4, 8)
EXCHANGES = {name: row.two_axes for name, row in ALGORITHMS.items() if row.coded}


@benchmark("payloads", devices=max(WORKERS))
def payloads(
    run: Run,
    size: Annotated[int, typer.Option(min=1, help="Elements of the array.")] = 1 << 20,
) -> Result:
    """Bytes of every compressor by every exchange, from compiled programs."""
    rows: list[dict[str, Any]] = [
        {
            "compressor": name,
            "workers": n,
            "times fewer": {
                algorithm: _times_fewer(make(), algorithm, n, size)
                for algorithm in EXCHANGES
            },
        }
        for n in WORKERS
        for name, make in COMPRESSORS.items()
    ]
    title = "Times fewer bytes than a float32 ring"
    most = [row for row in rows if row["workers"] == max(WORKERS)]
    names = [row["compressor"] for row in most]
    cells = [
        (row["compressor"], row["workers"], *map(_cell, row["times fewer"].values()))
        for row in rows
    ]
    lines = {
        name: (names, [row["times fewer"][name] or math.nan for row in most])
        for name in EXCHANGES
    }
    axes, n = ("compressor", "times fewer"), max(WORKERS)
    return run.finish(
        {"conditions": run.conditions(), "rows": rows},
        tables=[Table(title, ("compressor", "workers", *EXCHANGES), cells)],
        plots=[Plot(f"{title}, {n} workers", axes, lines)],
    )


def _cell(times: float | None) -> object:
    return "-" if times is None else times


def _times_fewer(
    compressor: Compressor, algorithm: str, n: int, size: int
) -> float | None:
    """Bytes of the float32 ring over those of a pair; None: the pair cannot be."""
    if algorithm == "psum" and not compressor.law.linear:
        return None
    axes = {"host": 2, "device": n // 2} if EXCHANGES[algorithm] else {"data": n}
    tx: Any = all_reduce(
        tuple(axes), algorithm=algorithm, compressor=compressor, bucket_bytes=2**30
    )

    def update(g):
        return tx.update(g[0], tx.init(g[0]))[0][None]

    devices = np.asarray(jax.devices()[:n]).reshape(tuple(axes.values()))
    spec = P(tuple(axes))
    step = jax.jit(
        jax.shard_map(
            update,
            mesh=Mesh(devices, tuple(axes)),
            in_specs=spec,
            out_specs=spec,
            check_vma=False,
        )
    )
    sent = compiled_wire_bytes(step, jax.ShapeDtypeStruct((n, size), jnp.float32))
    return ring_wire_bytes(jax.ShapeDtypeStruct((size,), jnp.float32), n) / sent

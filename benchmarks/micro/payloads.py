"""Bytes of every compressor by every exchange, from compiled programs.

The program of one update of one leaf on emulated devices is compiled, and the bytes
that its busiest device sends are set against those of a float32 ring over that leaf.
"""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from benchmarks.report import conditions, plot, save, show
from relaxjax.collectives import ring_wire_bytes
from relaxjax.compression import Compressor
from relaxjax.compression._rows import COMPRESSORS
from relaxjax.gradients._all_reduce import all_reduce
from relaxjax.gradients._choices import TWO_AXES
from relaxjax.gradients._compressed_mean import EXCHANGES
from relaxjax.programs._compiled import compiled_wire_bytes

WORKERS = (4, 8)


def payloads(*, size: int = 1 << 20, out: str = "runs/bench") -> dict[str, Any]:
    """Compiles every pair that can be, and counts.

    Args:
      size: elements of the leaf.
      out: folder for JSON and plot.

    Returns:
      What was counted, as saved: bytes of the ring divided by those of each pair.
    """
    rows = [
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
    result = {"conditions": conditions(size=size), "rows": rows}
    _report(result, out)
    return result


def _times_fewer(
    compressor: Compressor, algorithm: str, n: int, size: int
) -> float | None:
    """None for a pair that cannot be."""
    if algorithm == "psum" and not compressor.law.linear:
        return None
    axes = {"host": 2, "device": n // 2} if algorithm in TWO_AXES else {"data": n}
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


def _report(result: dict[str, Any], out: str) -> None:
    print(result["conditions"])
    table = [
        (row["compressor"], row["workers"], *_cells(row["times fewer"]))
        for row in result["rows"]
    ]
    columns = ("compressor", "workers", *EXCHANGES)
    show("Times fewer bytes than a float32 ring", columns, table)
    path = save(result, out, "payloads")
    most = [row for row in result["rows"] if row["workers"] == max(WORKERS)]
    names = [row["compressor"] for row in most]
    lines = {
        algorithm: (names, [row["times fewer"][algorithm] or math.nan for row in most])
        for algorithm in EXCHANGES
    }
    title = f"Times fewer bytes than a float32 ring, {max(WORKERS)} workers"
    plot(path, title, ("compressor", "times fewer"), lines)


def _cells(times: Mapping[str, float | None]) -> list[Any]:
    return ["-" if value is None else value for value in times.values()]

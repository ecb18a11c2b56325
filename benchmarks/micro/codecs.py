"""How fast compressors encode and decode, against `x + 1`.

The yardstick reads an array and writes one like it. Every rate counts what a program
must read and write: the array on one side, the payload on the other. Runs take turns
with the yardstick, and a ratio is the median of the pairs.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import typer

from benchmarks.measure import Ratio
from benchmarks.report import Plot, Result, Rounds, Run, Table, benchmark
from relaxjax import compression
from relaxjax.check._codec_time import codec_time
from relaxjax.compression import COMPRESSORS, Compressor

TARGET = 0.25  # of the yardstick's bytes per second


def compressors() -> Mapping[str, Callable[[], Compressor]]:
    """The compressors that have a name, and exact top-k."""
    exact = {"top_k_exact": lambda: compression.top_k(0.01, block_size=None)}
    return {**COMPRESSORS, **exact}


@benchmark("codecs")
def codecs(
    run: Run,
    size_mb: Annotated[float, typer.Option(min=0.001, help="MiB of the array.")] = 64,
    rounds: Rounds = 20,
) -> Result:
    """How fast every compressor encodes and decodes, against x + 1."""
    size = int(size_mb * 2**20) // 4
    x = jnp.asarray(np.random.default_rng(0).normal(size=size), jnp.float32)
    rows = [codec_time(name, make(), x, rounds) for name, make in compressors().items()]
    names = [row["name"] for row in rows]
    lines: dict[str, Any] = {
        side: (names, [row[f"{side} share"][0] for row in rows])
        for side in ("encode", "decode")
    }
    lines["target"] = (names, [TARGET] * len(names))
    device = jax.devices()[0].device_kind
    table = Table.of(
        "Encoding and decoding",
        rows,
        ("compressor", "name"),
        "bytes",
        "x + 1 GB/s",
        "encode GB/s",
        ("of x + 1", lambda row: Ratio(*row["encode share"], pairs=rounds)),
        "decode GB/s",
        ("of x + 1", lambda row: Ratio(*row["decode share"], pairs=rounds)),
    )
    return run.finish(
        {"conditions": run.conditions(device=device), "target": TARGET, "rows": rows},
        tables=[table],
        notes=[f"target: {TARGET} of the bytes per second of x + 1"],
        plots=[Plot("Throughput of compressors", ("compressor", "of x + 1"), lines)],
    )

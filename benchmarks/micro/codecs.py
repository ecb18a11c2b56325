"""How fast compressors encode and decode, against `x + 1`.

The yardstick reads an array and writes one like it. Every rate counts what a program
must read and write: the array on one side, the payload on the other. Runs take turns
with the yardstick, and a ratio is the median of the pairs.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.measure import Ratio
from benchmarks.report import conditions, plot, save, show
from relaxjax import compression
from relaxjax.check._codec_time import codec_time
from relaxjax.compression import Compressor
from relaxjax.compression._rows import COMPRESSORS

TARGET = 0.25  # of the yardstick's bytes per second


def table() -> Mapping[str, Callable[[], Compressor]]:
    """What is measured, by name: all that have one, and the exact top-k."""
    exact = {"top_k_exact": lambda: compression.top_k(0.01, block_size=None)}
    return {**COMPRESSORS, **exact}


def codecs(
    *, size_mb: float = 64, rounds: int = 20, out: str = "runs/bench"
) -> dict[str, Any]:
    """Times every compressor, encoding and decoding apart.

    Args:
      size_mb: MiB of the float32 array.
      rounds: interleaved with the yardstick.
      out: folder for JSON and plot.

    Returns:
      What was measured, as saved.
    """
    size = int(size_mb * 2**20) // 4
    x = jnp.asarray(np.random.default_rng(0).normal(size=size), jnp.float32)
    rows = [codec_time(name, make(), x, rounds) for name, make in table().items()]
    result = {
        "conditions": conditions(
            size_mb=size_mb, rounds=rounds, device=jax.devices()[0].device_kind
        ),
        "target": TARGET,
        "rows": rows,
    }
    _report(result, out)
    return result


def _share(row: dict[str, Any], side: str) -> Ratio:
    median, low, high = row[f"{side} share"]
    return Ratio(median, low, high, len(row["seconds"][side]))


def _report(result: dict[str, Any], out: str) -> None:
    print(result["conditions"])
    rows = [
        (
            row["name"],
            row["bytes"],
            row["x + 1 GB/s"],
            row["encode GB/s"],
            _share(row, "encode"),
            row["decode GB/s"],
            _share(row, "decode"),
        )
        for row in result["rows"]
    ]
    columns = (
        "compressor",
        "bytes",
        "x + 1 GB/s",
        "encode GB/s",
        "of x + 1",
        "decode GB/s",
        "of x + 1",
    )
    show("Encoding and decoding", columns, rows)
    print(f"target: {result['target']} of the bytes per second of x + 1")
    path = save(result, out, "codecs")
    names = [row["name"] for row in result["rows"]]
    lines: dict[str, Any] = {
        side: (names, [row[f"{side} share"][0] for row in result["rows"]])
        for side in ("encode", "decode")
    }
    lines["target"] = (names, [result["target"]] * len(names))
    plot(path, "Throughput of compressors", ("compressor", "of x + 1"), lines)

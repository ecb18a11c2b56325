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

from relaxjax import compression
from relaxjax._core._random import Noise, fold, words_of
from relaxjax.bench._measure import Ratio, interleaved, quartiles, ratio
from relaxjax.bench._report import conditions, plot, save, show
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
    rows = [timed(name, make(), x, rounds) for name, make in table().items()]
    result = {
        "conditions": conditions(
            size_mb=size_mb, rounds=rounds, device=jax.devices()[0].device_kind
        ),
        "target": TARGET,
        "rows": rows,
    }
    _report(result, out)
    return result


def timed(
    name: str, compressor: Compressor, x: jax.Array, rounds: int
) -> dict[str, Any]:
    """Times a compressor in turns with `x + 1`.

    Args:
      name: of the row.
      compressor: without regard to its feedback.
      x: float32[d].
      rounds: interleaved.

    Returns:
      Bytes of the payload, seconds of all rounds, and for each side GB/s and its share
      of the yardstick's, with the interval.
    """
    words = words_of(0)
    noise = Noise(words, fold(words, 1)) if compressor.random else None
    plus_one, encode = jax.jit(lambda x: x + 1), jax.jit(compressor.compress)
    decode = jax.jit(lambda p, n: compressor.decompress(p, x.size, n))
    payload = jax.block_until_ready(encode(x, noise))
    seconds = interleaved(
        {
            "x + 1": lambda: plus_one(x),
            "encode": lambda: encode(x, noise),
            "decode": lambda: decode(payload, noise),
        },
        rounds,
    )
    coded = sum(leaf.nbytes for leaf in jax.tree.leaves(payload))
    return _row(name, seconds, x.nbytes, coded)


def _row(
    name: str, seconds: Mapping[str, list[float]], plain: int, coded: int
) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "bytes": coded, "seconds": dict(seconds)}
    row["x + 1 GB/s"] = 2 * plain / quartiles(seconds["x + 1"])[1] / 1e9
    for side in ("encode", "decode"):
        moved = plain + coded
        row[f"{side} GB/s"] = moved / quartiles(seconds[side])[1] / 1e9
        times = ratio(seconds["x + 1"], seconds[side])
        row[f"{side} share"] = [t * moved / (2 * plain) for t in times[:3]]
    return row


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

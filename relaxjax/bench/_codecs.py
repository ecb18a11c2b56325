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
from relaxjax._noise import Noise, fold, words_of
from relaxjax.bench._measure import Ratio, interleaved, quartiles, ratio
from relaxjax.bench._report import conditions, plot, save, show
from relaxjax.compression import Compressor

TARGET = 0.25  # of the yardstick's bytes per second


def table() -> Mapping[str, Callable[[], Compressor]]:
    """What is measured, by name."""
    return {
        "identity": compression.identity,
        "bfloat16": lambda: compression.cast(jnp.bfloat16),
        "float16": lambda: compression.cast(jnp.float16),
        "float8": lambda: compression.cast(jnp.float8_e4m3fn),
        "quantize8": lambda: compression.quantize(8),
        "quantize4": lambda: compression.quantize(4),
        "quantize2": lambda: compression.quantize(2),
        "quantize8_stochastic": lambda: compression.quantize(
            8, stochastic_rounding=True
        ),
        "quantize4_stochastic": lambda: compression.quantize(
            4, stochastic_rounding=True
        ),
        "min_max_uint8": compression.min_max_uint8,
        "codebook8": lambda: compression.codebook(8),
        "codebook4": lambda: compression.codebook(4),
        "codebook2": lambda: compression.codebook(2),
        "qsgd7": lambda: compression.qsgd(7),
        "tern_grad": compression.tern_grad,
        "natural": compression.natural,
        "dithering7": lambda: compression.dithering(7),
        "sign": compression.sign,
        "sign_blocks": lambda: compression.sign(block_size=1024),
        "drive": compression.drive,
        "rotated_sign": compression.rotated_sign,
    }


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
    plus_one = jax.jit(lambda x: x + 1)
    rows = []
    for name, make in table().items():
        compressor = make()
        words = words_of(0)
        noise = Noise(words, fold(words, 1)) if compressor.random else None
        encode = jax.jit(compressor.compress)
        decode = jax.jit(lambda p, n, c=compressor: c.decompress(p, size, n))
        payload = jax.block_until_ready(encode(x, noise))
        seconds = interleaved(
            {
                "x + 1": lambda: plus_one(x),
                "encode": lambda e=encode, n=noise: e(x, n),
                "decode": lambda d=decode, p=payload, n=noise: d(p, n),
            },
            rounds,
        )
        coded = sum(leaf.nbytes for leaf in jax.tree.leaves(payload))
        rows.append(_row(name, seconds, x.nbytes, coded))
    result = {
        "conditions": conditions(
            size_mb=size_mb, rounds=rounds, device=jax.devices()[0].device_kind
        ),
        "target": TARGET,
        "rows": rows,
    }
    _report(result, out)
    return result


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

"""How fast a compressor encodes and decodes, against `x + 1`.

This yardstick reads an array and writes one like it. Every rate counts the bytes that a
program must read and write: the array on one side, the payload on the other. Runs take
turns with the yardstick, and a ratio is the median of the pairs.
"""

import os
import platform
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import jax
import numpy as np

from relaxjax.check._samples import noise_of
from relaxjax.compression import Compressor


def codec_time(
    name: str, compressor: Compressor, x: jax.Array, rounds: int
) -> dict[str, Any]:
    """Times a compressor, without its feedback, in turns with `x + 1` on float32[d].

    Returns:
      A row: name, bytes of the payload, seconds of all rounds, and for each side its
      GB/s and its share of the yardstick's, with the quartiles of the pairs' ratios.
    """
    noise = noise_of(compressor, 0)
    plus_one, encode = jax.jit(lambda x: x + 1), jax.jit(compressor.compress)
    decode = jax.jit(lambda p, n: compressor.decompress(p, x.size, n))
    payload = jax.block_until_ready(encode(x, noise))
    seconds = _interleaved(
        {
            "x + 1": lambda: plus_one(x),
            "encode": lambda: encode(x, noise),
            "decode": lambda: decode(payload, noise),
        },
        rounds,
    )
    nbytes = sum(leaf.nbytes for leaf in jax.tree.leaves(payload))
    row: dict[str, Any] = {"name": name, "bytes": nbytes, "seconds": seconds}
    yardstick = np.asarray(seconds["x + 1"])
    row["x + 1 GB/s"] = 2 * x.nbytes / float(np.median(yardstick)) / 1e9
    moved = x.nbytes + nbytes
    for side in ("encode", "decode"):
        taken = np.asarray(seconds[side])
        row[f"{side} GB/s"] = moved / float(np.median(taken)) / 1e9
        ratios = np.percentile(yardstick / taken, [50, 25, 75])
        row[f"{side} share"] = [float(r) * moved / (2 * x.nbytes) for r in ratios]
    return row


def conditions(**others: Any) -> dict[str, Any]:
    """The machine, the versions, and what the caller adds."""
    return {
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "jax": version("jax"),
        "numpy": version("numpy"),
        **others,
    }


def _interleaved(
    runs: dict[str, Callable[[], Any]], rounds: int
) -> dict[str, list[float]]:
    """Seconds of each run, taking turns, after one round that is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds + 1):
        for name, run in runs.items():
            start = time.perf_counter()
            jax.block_until_ready(run())
            if number:
                seconds[name].append(time.perf_counter() - start)
    return seconds

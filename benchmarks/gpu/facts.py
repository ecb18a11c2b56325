"""What compilers for CPU and GPU might do otherwise: residuals, repeats, packed bytes.

For each compressor, an all-reduce of two workers with error feedback around the code;
and its payload, on the device and on this machine's CPU:

    residual    |what is owed| / |x|; 0 from a lossy code is a residual that died
    conserved   |sum over workers of x - sent - owed| / |x|, a rounding
    repeats     whether two runs give the same bits
    bytes       of the payload on the device, and as stated
    as on CPU   share of bytes of the payload that are the CPU's
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.gpu.record import Record, Row
from relaxjax import all_reduce
from relaxjax._core._extremes import largest
from relaxjax.check._samples import noise_of
from relaxjax.compression import (
    COMPRESSORS,
    Compressor,
    error_feedback,
    payload_bytes,
)

WITHOUT = ("drive",)  # neither a contraction nor unbiased: no feedback fits it


def facts(record: Record) -> None:
    """A row for each compressor, and one for a residual that is computed naively."""
    size = 2**12 if record.tiny else 2**22
    x = np.random.default_rng(0).normal(size=size).astype(np.float32)
    record.measure("x - float32(bfloat16(x))", lambda: naive(x))
    lossy = {k: make for k, make in COMPRESSORS.items() if k not in WITHOUT}
    for name, make in record.some(lossy).items():
        record.measure(name, lambda make=make: fact(make(), x))


def naive(x: np.ndarray) -> Row:
    """The largest residual of a cast that nothing protects."""

    def lost(x: jax.Array) -> jax.Array:
        return largest(x - x.astype(jnp.bfloat16).astype(jnp.float32))

    return {"largest residual": float(jax.jit(lost)(x))}


def fact(compressor: Compressor, x: np.ndarray) -> Row:
    """The row of one compressor."""
    tx: Any = all_reduce("data", compressor=error_feedback(compressor))
    noise = noise_of(compressor, 0)

    def step(g: jax.Array) -> tuple[jax.Array, Any]:
        sent, state = tx.update(g, tx.init(g))
        return sent, state.compressed.feedback.residual

    both = np.stack([x, x])
    run = jax.jit(jax.vmap(step, axis_name="data"))
    encode = jax.jit(lambda x: compressor.compress(x, noise))
    sent, owed = (np.asarray(y) for y in run(both))
    payload = bytes_of(encode(x))
    again = bytes_of(run(both)) == bytes_of((sent, owed))
    with jax.default_device(jax.devices("cpu")[0]):
        there = bytes_of(encode(x))
    norm = np.linalg.norm(both)
    same = np.frombuffer(payload, np.uint8) == np.frombuffer(there, np.uint8)
    return {
        "residual": float(np.linalg.norm(owed) / norm),
        "conserved": float(np.linalg.norm((both - sent - owed).sum(axis=0)) / norm),
        "repeats": again and bytes_of(encode(x)) == payload,
        "bytes": len(payload),
        "bytes stated": payload_bytes(compressor, jax.typeof(x)),
        "as on CPU": float(np.mean(same)),
    }


def bytes_of(tree: Any) -> bytes:
    """The bytes of all leaves."""
    return b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree))

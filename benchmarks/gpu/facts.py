"""What compilers for CPU and GPU might do otherwise: residuals, repeats, packed bytes.

For each compressor with error feedback around it, on the device and on this machine's
CPU, on the same numbers:

    residual    |what is owed| / |x|; 0 from a lossy code is a residual that died
    conserved   |x - sent - owed| / |x|, a rounding
    repeats     whether two runs give the same bits
    bytes       of the payload on the device, and as stated
    as on CPU   share of bytes of the payload that are the CPU's
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.gpu.record import Record, Row
from relaxjax.check._samples import noise_of
from relaxjax.compression import COMPRESSORS, Compressor, payload_bytes


def facts(record: Record) -> None:
    """A row for each compressor, and one for a residual that is computed naively."""
    size = 2**12 if record.tiny else 2**22
    x = np.random.default_rng(0).normal(size=size).astype(np.float32)
    record.measure("x - float32(bfloat16(x))", lambda: naive(x))
    for name, make in record.some(COMPRESSORS).items():
        record.measure(name, lambda make=make: fact(make(), x))


def naive(x: np.ndarray) -> Row:
    """The largest residual of a cast that nothing protects."""

    def lost(x: jax.Array) -> jax.Array:
        return jnp.max(jnp.abs(x - x.astype(jnp.bfloat16).astype(jnp.float32)))

    return {"largest residual": float(jax.jit(lost)(x))}


def fact(compressor: Compressor, x: np.ndarray) -> Row:
    """The row of one compressor."""
    noise = noise_of(compressor, 0)

    def both(x: jax.Array) -> tuple[Any, jax.Array, jax.Array]:
        payload = compressor.compress(x, noise)
        sent = compressor.decompress(payload, x.size, noise)
        return payload, sent, x - sent

    run = jax.jit(both)
    payload, sent, owed = jax.device_get(run(x))
    again = jax.device_get(run(x))
    with jax.default_device(jax.devices("cpu")[0]):
        there = jax.device_get(jax.jit(both)(x))[0]
    norm, bits = np.linalg.norm(x), bytes_of(payload)
    same = np.frombuffer(bits, np.uint8) == np.frombuffer(bytes_of(there), np.uint8)
    return {
        "residual": float(np.linalg.norm(owed) / norm),
        "conserved": float(np.linalg.norm(x - sent - owed) / norm),
        "repeats": bytes_of(again) == bytes_of((payload, sent, owed)),
        "bytes": len(bits),
        "bytes stated": payload_bytes(
            compressor, jax.ShapeDtypeStruct(x.shape, x.dtype)
        ),
        "as on CPU": float(np.mean(same)),
    }


def bytes_of(tree: Any) -> bytes:
    """The bytes of all leaves."""
    return b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree))

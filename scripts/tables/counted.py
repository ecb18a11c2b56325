"""Bytes and losses that the code states: nothing here was measured."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import relaxjax
from relaxjax import compression
from relaxjax.compression import Compressor, payload_bytes
from scripts.tables.rows import heads, row

FORMATS = {
    f'mx("{element}")': compression.mx(element)
    for element in ("e4m3", "e5m2", "int8", "e2m3", "e3m2", "e2m1")
} | {"nvfp4()": compression.nvfp4()}
ROWS, CHANNELS, LOUD = 512, 512, 50.0
"""Gaussian elements, of which one channel of 32 may be so much larger."""
WORKERS = (2, 4, 8, 16, 64)
MATRIX = {"w": jax.ShapeDtypeStruct((1024, 1024), jnp.float32)}


def formats() -> list[str]:
    """Bits an element, and what small floats lose, without and with outliers."""
    plain = np.random.default_rng(0).normal(size=(ROWS, CHANNELS)).astype(np.float32)
    columns = ["bits an element", "Gaussian elements lose"]
    head = f"one channel of 32 is {LOUD:g} times larger: the others lose"
    lines = heads("", [*columns, head])
    quiet = np.arange(CHANNELS) % 32 != 0
    for name, code in FORMATS.items():
        bits = 8 * payload_bytes(code, jnp.asarray(plain)) / plain.size
        loud = np.where(quiet, plain, plain * np.float32(LOUD))
        lost = [_lost(code, plain, quiet), _lost(code, loud, quiet)]
        lines.append(row(f"`{name}`", [f"{bits:.3g}", *(f"{x:.2g}" for x in lost)]))
    return lines


def _lost(code: Compressor, x: np.ndarray, of: np.ndarray) -> float:
    """|C(x) - x|^2 / |x|^2 over these channels."""
    flat = jnp.asarray(x).ravel()
    back = jax.jit(lambda x: code.decompress(code.compress(x, None), x.size, None))(
        flat
    )
    off = np.asarray(back, np.float64).reshape(x.shape) - x
    return float(np.sum(off[:, of] ** 2) / np.sum(x[:, of].astype(np.float64) ** 2))


def sparse_gradients() -> list[str]:
    """Bytes of a matrix by deep gradient compression, for some numbers of workers."""
    name = f"a matrix of {' x '.join(map(str, MATRIX['w'].shape))}, n ="
    dense = [_sent(relaxjax.all_reduce("data"), n) for n in WORKERS]
    lines = heads(name, map(str, WORKERS))
    lines.append(row("all-reduce, bytes per worker", map(str, dense)))
    for density in (0.001, 0.25):
        tx = relaxjax.deep_gradient_compression("data", density=density)
        sparse = [_sent(tx, n) for n in WORKERS]
        lines.append(row(f"density {density:g}", map(str, sparse)))
        if density == 0.001:
            fewer = (d / s for d, s in zip(dense, sparse, strict=True))
            lines.append(row("times fewer", (f"{x:.0f}" for x in fewer)))
    return lines


def _sent(tx: optax.GradientTransformation, workers: int) -> int:
    return relaxjax.wire_bytes(tx, MATRIX, relaxjax.emulate(workers), start=10_000)

"""The table of compressors and exchanges, made from the code."""

import jax
import jax.numpy as jnp

from relaxjax.collectives import CODED_EXCHANGES
from relaxjax.compression import Compressor, payload_bytes
from relaxjax.compression._rows import COMPRESSORS
from scripts.tables.rows import heads, row

SIZE = 4096


def law(compressor: Compressor) -> str:
    """U(omega), B(delta) and L, as declared."""
    found = compressor.law
    omega, delta, linear = found.omega, found.delta, found.linear
    parts = [f"U({omega(SIZE):.3g})"] if omega else []
    parts += [f"B({delta(SIZE):.3g})"] if delta else []
    parts += ["L"] if linear else []
    return ", ".join(parts) or "none"


def kind(compressor: Compressor, algorithm: str) -> str:
    """Exact, unbiased, biased, or nothing."""
    omega = compressor.law.omega
    if algorithm == "psum" and not compressor.law.linear:
        return "-"
    if omega and omega(SIZE) == 0:
        return "exact"
    return "unbiased" if omega else "biased"


def table() -> list[str]:
    """Law and bytes of each, and what it is by each exchange."""
    by = [f"`{name}`, {e.stages}" for name, e in CODED_EXCHANGES.items()]
    lines = heads("compressor", ["law", "bytes", *by])
    x = jax.ShapeDtypeStruct((SIZE,), jnp.float32)
    for name, make in COMPRESSORS.items():
        compressor = make()
        kinds = [kind(compressor, algorithm) for algorithm in CODED_EXCHANGES]
        first = [law(compressor), str(payload_bytes(compressor, x))]
        lines.append(row(f"`{name}`", [*first, *kinds]))
    return lines

"""The table of compressors and exchanges, made from the code."""

import jax
import jax.numpy as jnp
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from relaxjax.collectives import CODED_EXCHANGES
from relaxjax.compression import Compressor, payload_bytes
from relaxjax.compression._rows import COMPRESSORS

SIZE = 4096


def law(compressor: Compressor) -> str:
    found = compressor.law
    omega, delta, linear = found.omega, found.delta, found.linear
    parts = [f"U({omega(SIZE):.3g})"] if omega else []
    parts += [f"B({delta(SIZE):.3g})"] if delta else []
    parts += ["L"] if linear else []
    return ", ".join(parts) or "none"


def kind(compressor: Compressor, algorithm: str) -> str:
    omega = compressor.law.omega
    if algorithm == "psum" and not compressor.law.linear:
        return "-"
    if omega and omega(SIZE) == 0:
        return "exact"
    return "unbiased" if omega else "biased"


def table() -> list[str]:
    heads = [f"`{name}`, {e.stages}" for name, e in CODED_EXCHANGES.items()]
    lines = [
        "| compressor | law | bytes | " + " | ".join(heads) + " |",
        "|---" * (3 + len(heads)) + "|",
    ]
    x = jax.ShapeDtypeStruct((SIZE,), jnp.float32)
    for name, make in COMPRESSORS.items():
        compressor = make()
        kinds = [kind(compressor, algorithm) for algorithm in CODED_EXCHANGES]
        first = [f"`{name}`", law(compressor), str(payload_bytes(compressor, x))]
        lines.append("| " + " | ".join([*first, *kinds]) + " |")
    return lines


class CompressorTable(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes("\n".join(table()))


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("compressor-table", CompressorTable)
    return {"parallel_read_safe": True}

"""The table of named topologies at eight workers, made from the code."""

from relaxjax.topology._rows import TOPOLOGIES
from scripts.tables.rows import heads, row

WORKERS = 8


def table() -> list[str]:
    """Messages, rounds and spectral gap of each."""
    lines = heads("after @", ["messages a round", "rounds", "gap"])
    for name, make in TOPOLOGIES.items():
        graph = make(WORKERS)
        gap = f"{graph.spectral_gap():.3g}"
        lines.append(row(f"`{name}`", [f"{graph.degree}", f"{graph.period}", gap]))
    return lines

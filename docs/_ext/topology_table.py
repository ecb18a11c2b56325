"""The table of named topologies at eight workers, made from the code."""

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from relaxjax.topology._rows import TOPOLOGIES

WORKERS = 8


def table() -> list[str]:
    lines = ["| after @ | messages a round | rounds | gap |", "|---|---|---|---|"]
    for name, make in TOPOLOGIES.items():
        graph = make(WORKERS)
        gap = f"{graph.spectral_gap():.3g}"
        lines.append(f"| `{name}` | {graph.degree} | {graph.period} | {gap} |")
    return lines


class TopologyTable(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes("\n".join(table()))


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("topology-table", TopologyTable)
    return {"parallel_read_safe": True}

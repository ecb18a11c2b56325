"""The list of the algorithms' pages, by the rooms in which their modules stand."""

from algorithm_pages import algorithms, stem_of, title_of
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOMS = {
    "gradients": "Gradients, before the optimizer",
    "compression": "Compressors, and feedback around them",
    "local_updates": "Local steps, after the optimizer",
    "decentralized": "Fewer peers, after the optimizer",
    "ps": "Parameter servers",
    "activations": "Inside a split model",
    "collectives": "Collectives",
    "faults": "Faults",
}


def lists() -> list[str]:
    """The Markdown of a list of pages for each room, by title."""
    lines = []
    for room, caption in ROOMS.items():
        inside = [m for m in algorithms() if m.split(".")[1] == room]
        lines += ["```{toctree}", ":maxdepth: 1", f":caption: {caption}", ""]
        pages = sorted(inside, key=lambda module: title_of(module).lower())
        lines += [f"algorithms/{stem_of(module)}" for module in pages]
        lines += ["```", ""]
    return lines


class AlgorithmList(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes("\n".join(lists()))


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("algorithm-list", AlgorithmList)
    return {"parallel_read_safe": True}

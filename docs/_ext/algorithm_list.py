"""The lists of the algorithms' pages, one for each room in which modules stand."""

from pathlib import Path

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


def inside(room: str) -> list[str]:
    """The pages of a room, by title."""
    modules = [m for m in algorithms() if m.split(".")[1] == room]
    return [stem_of(m) for m in sorted(modules, key=lambda m: title_of(m).lower())]


def room_page(room: str) -> str:
    """The Markdown of a room's page: a heading of the sidebar, over its algorithms."""
    return _list(f"# {ROOMS[room]}", inside(room))


def lists() -> list[str]:
    """The Markdown of the list of rooms."""
    return _list("", [f"algorithms/in_{room}" for room in ROOMS]).splitlines()


def _list(title: str, pages: list[str]) -> str:
    head = [title, "", "```{toctree}", ":maxdepth: 2", ""]
    return "\n".join([*head, *pages, "```", ""])


def write(app: Sphinx) -> None:
    """Writes the pages of the rooms beside those of the algorithms."""
    folder = Path(app.srcdir) / "algorithms"
    folder.mkdir(exist_ok=True)
    for room in ROOMS:
        (folder / f"in_{room}.md").write_text(room_page(room))


class AlgorithmList(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes("\n".join(lists()))


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("algorithm-list", AlgorithmList)
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True}

"""The public names of a room, with their docstrings: of a new method, without a line.

    {room} decentralized

Functions and classes stand in the order of their names, a state behind what makes it.
"""

import importlib
import inspect

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


def entries(room: str) -> list[str]:
    """Lines of reStructuredText."""
    door = importlib.import_module(f"relaxjax.{room}")
    kinds = {name: inspect.isclass(getattr(door, name)) for name in door.__all__}
    lines = [".. currentmodule:: relaxjax"]
    for name in sorted(kinds, key=lambda name: name.replace("_", "").lower()):
        lines.append(f".. auto{'class' if kinds[name] else 'function'}:: {name}")
    return lines


class Room(SphinxDirective):
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        text = ["```{eval-rst}", *entries(self.arguments[0]), "```"]
        return self.parse_text_to_nodes("\n".join(text))


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("room", Room)
    return {"parallel_read_safe": True}

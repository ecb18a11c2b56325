"""Reads Google's docstrings, in which a colon belongs to a sentence and is no type.

Napoleon takes what stands before the first colon of "Returns", and of the docstring of
an attribute, for a type: "The curve, and its speed: rows of step and loss" became a
return type named "The curve, and its speed". This project states types in annotations,
so a docstring has none to offer. What stands in backticks is code, and links to what it
names if it names it in full.
"""

from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.ext.napoleon.docstring import GoogleDocstring


class Sentences(GoogleDocstring):
    """Napoleon's reader, without types in sentences."""

    def _consume_returns_section(
        self, preprocess_types: bool = False
    ) -> list[tuple[str, str, list[str]]]:
        return [("", "", self._read(self._consume_to_next_section()))]

    def _consume_inline_attribute(self) -> tuple[str, list[str]]:
        return "", self._read(self._consume_to_end())

    def _read(self, lines: list[str]) -> list[str]:
        settings: Any = self._config
        return type(self)(self._dedent(lines), settings).lines()


def process(
    app: Sphinx, what: Any, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Turns a docstring's sections into fields, in place."""
    lines[:] = Sentences(lines, app.config, app, what, name, obj).lines()


def unlink(app: Sphinx, doctree: nodes.document) -> None:
    """Leaves bare names as code: `init` may be that of any transformation."""
    for reference in list(doctree.findall(addnodes.pending_xref)):
        if reference["reftype"] == "obj" and "." not in reference["reftarget"]:
            reference.replace_self(reference.children)


def setup(app: Sphinx) -> dict[str, bool]:
    app.setup_extension("sphinx.ext.napoleon")  # has the settings
    app.connect("autodoc-process-docstring", process)
    app.connect("doctree-read", unlink)
    return {"parallel_read_safe": True}

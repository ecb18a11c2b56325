"""Equations as MathML, which browsers draw themselves: no script, and no network.

The conversion is docutils' own, which is its default for HTML.
"""

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.writers.html5 import HTML5Translator


def markup(latex: str, *, block: bool) -> str:
    """MathML of an equation.

    Raises:
      ExtensionError: docutils does not know a command; the error names the equation.
    """
    try:
        return tex2mathml(latex, as_block=block)
    except MathError as error:
        raise ExtensionError(
            f"docutils cannot convert the equation {latex}: {error} "
            "Write it with other commands."
        ) from error


def inline(translator: HTML5Translator, node: nodes.math) -> None:
    """Writes an equation inside a line."""
    translator.body.append(markup(node.astext(), block=False))
    raise nodes.SkipNode


def display(translator: HTML5Translator, node: nodes.math_block) -> None:
    """Writes an equation by itself, in a box that scrolls where it is too wide."""
    translator.body.append(translator.starttag(node, "div", CLASS="equation"))
    translator.body.append(markup(node.astext(), block=True))
    translator.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (inline, None), (display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}

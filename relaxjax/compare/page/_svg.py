"""Figures as SVG that follow a light or dark page, and as PNG."""

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING

from relaxjax._core.foreign._extra import extra
from relaxjax.compare.page._figures import RC
from relaxjax.compare.page._styles import THEMES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif"


def variables(theme: str) -> str:
    """The colors of a theme as custom properties of CSS.

    Args:
      theme: "light" or "dark".
    """
    changed = THEMES["light"] | {color: color for color in THEMES["dark"]}
    colors = {color: THEMES[theme].get(color, color) for color in changed}
    return "".join(f"--c{old[1:]}:{new};" for old, new in colors.items())


def svg(figure: "Figure", *, title: str, prefix: str) -> str:
    """A figure as an `<svg>` element: its text is text, its colors follow the page.

    Args:
      figure: a matplotlib figure.
      title: what a screen reader says.
      prefix: begins every id, so that figures on one page do not share any.
    """
    with extra("figures need"):
        import matplotlib
    from html import escape

    file = io.StringIO()
    with matplotlib.rc_context(RC):
        figure.savefig(file, format="svg", transparent=True)
    text = re.sub(r"<metadata>.*?</metadata>", "", file.getvalue(), flags=re.S)
    text = text[text.index("<svg") :].replace("*{stroke", "svg *{stroke")
    text = re.sub(r"font-family: [^;\"]*", f"font-family: {FONT}", text)
    text = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{prefix}-", text)
    for color in THEMES["light"] | THEMES["dark"]:
        text = text.replace(f": {color}", f": var(--c{color[1:]},{color})")
    said = f'role="img" aria-label="{escape(title)}"'
    return re.sub(r"<svg ", f"<svg {said} ", text, count=1)


def standalone(element: str) -> str:
    """An `<svg>` element as a file of its own, which follows the viewer's theme."""
    dark = f"@media (prefers-color-scheme:dark){{svg{{{variables('dark')}}}}}"
    style = f"<style>svg{{{variables('light')}}}{dark}</style>"
    head, tail = element.split(">", 1)
    return f"{head}>{style}{tail}"


def png(figure: "Figure", path: Path) -> None:
    """Writes a figure on white, 840 pixels wide."""
    with extra("figures need"):
        import matplotlib
    with matplotlib.rc_context(RC):
        figure.savefig(path, dpi=200, facecolor="white", metadata={"Software": None})

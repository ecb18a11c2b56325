"""One color for each method in all figures, and names that fit a margin.

Source of the colors: Okabe and Ito (2008), Color Universal Design: eight colors that
people with any common color vision tell apart. The baseline has the color of the text.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

INK, MUTED, GRID, PAPER = "#1f2328", "#59636e", "#d1d9e0", "#ffffff"
"""What is not a method: text, lesser text, lines behind the curves, and the ground."""
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#a89a00")
"""The last one, yellow, is darker than its source where the ground is white."""
THEMES = {
    "light": {INK: INK, MUTED: MUTED, GRID: GRID, PAPER: PAPER},
    "dark": {INK: "#e6edf3", MUTED: "#9da7b3", GRID: "#343b44", PAPER: "#15181d"}
    | {PALETTE[0]: "#3394d6", PALETTE[-1]: "#f0e442"},
}
"""What each color becomes on a light and on a dark ground; others stay."""
DASHES = ("solid", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)))
"""Beyond eight methods, colors come again with another stroke."""
LINES = 8
"""The most lines in a figure unless more are asked for."""


class Style(NamedTuple):
    """How a method looks.

    Attributes:
      color: of its lines and cells.
      dash: stroke of its lines, as matplotlib takes it.
      text: color of letters on a cell of `color`.
    """

    color: str
    dash: str | tuple[int, tuple[float, ...]]
    text: str


def styles(methods: Sequence[str]) -> dict[str, Style]:
    """A style for each method, by its place in the study alone.

    Args:
      methods: labels in the study's order; the first is the baseline.

    Example:
      >>> from relaxjax.compare.page._styles import styles
      >>> styles(["all_reduce", "power_sgd"])["power_sgd"].color
      '#0072b2'
    """
    result = {methods[0]: Style(INK, "solid", PAPER)}
    for index, method in enumerate(methods[1:]):
        again, place = divmod(index, len(PALETTE))
        text = "#ffffff" if place == 0 else "#000000"
        result[method] = Style(PALETTE[place], DASHES[again % len(DASHES)], text)
    return result


def wrapped(name: str, width: int = 14) -> str:
    """A name on several lines, broken where its parts meet; nothing is left out.

    Example:
      >>> from relaxjax.compare.page._styles import wrapped
      >>> print(wrapped("all_reduce+sign+ef14@two_shot"))
      all_reduce
      +sign+ef14
      @two_shot
    """
    parts: list[str] = []
    for piece in re.findall(r"[+@,: ]?[^+@,: ]+|.", name):
        short = len(piece) <= width
        parts += [piece] if short else re.findall("[^_=]+[_=]*|.", piece)
    lines = [""]
    for part in parts:
        if lines[-1] and len(lines[-1] + part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(line.strip() for line in lines)

"""What a notebook shows of a value: words and tables, escaped."""

import itertools
from collections.abc import Iterable, Sequence
from html import escape


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], bold: int = -1) -> str:
    """A table of text; the row of the number `bold` is bold."""
    kinds = ("th" if number == bold else "td" for number in itertools.count())
    lines = [_row("th", heads), *map(_row, kinds, rows)]
    return f"<table>{''.join(lines)}</table>"


def paragraphs(texts: Iterable[str]) -> str:
    """Sentences, each on its own line."""
    return "".join(f"<p>{escape(text)}</p>" for text in texts)


def _row(tag: str, cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(x)}</{tag}>' for x in cells)}</tr>"

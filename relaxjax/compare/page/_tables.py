"""The table of a study, for a terminal, for LaTeX, and as cells for pages."""

import io
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from relaxjax._core.foreign._extra import extra
from relaxjax.compare.kept._summary import Row, Summary, summary
from relaxjax.compare.page import _words as words
from relaxjax.compare.page._styles import wrapped

if TYPE_CHECKING:
    from rich.table import Table


class Column(NamedTuple):
    """A column of a table.

    Attributes:
      title: its heading.
      cell: the text of a row.
      order: what the row is sorted by; None sorts last.
      right: whether it is aligned to the right.
    """

    title: str
    cell: Callable[[Row], str]
    order: Callable[[Row], Any]
    right: bool = True


def quality(result: Summary) -> list[Column]:
    """Columns on the metric and the bytes."""
    return [
        Column("method", lambda row: row.method, lambda row: row.method, right=False),
        Column(
            f"test {result.metric_name}", words.mean_and_spread, lambda row: row.mean
        ),
        Column("difference", words.difference, _mean_difference),
        Column("verdict", words.verdict, words.verdict, right=False),
        _number("bytes a step", _nbytes, lambda row: row.bytes_per_step),
        _number("fewer", words.times, lambda row: row.fewer_bytes),
        Column("rate", lambda row: str(row.setting or "-"), _rate, right=False),
    ]


def _number(
    title: str,
    said: Callable[[float | None], str],
    value: Callable[[Row], float | None],
) -> Column:
    return Column(title, lambda row: said(value(row)), value)


def _nbytes(value: float | None) -> str:
    return words.scaled(value, "B")


def _seconds(value: float | None) -> str:
    return words.scaled(value, "s")


def _mean_difference(row: Row) -> float | None:
    return (
        row.verdict.difference.mean if row.verdict and row.verdict.difference else None
    )


def _rate(row: Row) -> float | None:
    return row.setting.learning_rate if row.setting else None


def speed(result: Summary) -> list[Column]:
    """Columns on the way to the target: steps, bytes, and seconds on each network."""
    found = [
        quality(result)[0],
        Column(
            "steps to target", words.steps_to_target, lambda row: row.steps_to_target
        ),
        Column(
            "bytes to target",
            lambda row: words.reached(row, row.bytes_to_target, "B"),
            lambda row: row.bytes_to_target,
        ),
    ]
    for network in result.study.get("networks", []):
        found += _on(network["name"])
    return found


def _on(name: str) -> list[Column]:
    """Columns on one network: a step, and the way to the target."""

    def to_target(row: Row) -> float | None:
        return row.seconds_to_target.get(name)

    def cell(row: Row) -> str:
        return words.reached(row, to_target(row), "s")

    step = _number(f"step on {name}", _seconds, lambda row: row.seconds.get(name))
    return [step, Column(f"to target on {name}", cell, to_target)]


def table(
    study: dict[str, Any], records: Sequence[dict[str, Any]], *, width: int = 80
) -> "Table":
    """The table of a study for a terminal.

    Names and numbers are whole; columns that do not fit are left out, and the caption
    names them.

    Args:
      study: what is in `study.json`.
      records: lines of `results.jsonl`.
      width: columns of the terminal.

    Returns:
      A table of rich.

    Raises:
      ImportError: rich or scipy is missing.
    """
    with extra("tables need"):
        from rich import box
        from rich.table import Table
    result = summary(study, records)
    every = {column: _fitted(column, result.rows, width) for column in _ranked(result)}
    fits = _that_fit(every, width)
    left_out = [column.title for column in every if column not in fits]
    caption = f"a wider terminal shows {', '.join(left_out)}" if left_out else None
    shown = Table(box=box.SIMPLE_HEAD, caption=caption, padding=(0, 1), pad_edge=False)
    for column, (heading, *_) in fits.items():
        justify = "right" if column.right else "left"
        shown.add_column(heading, justify=justify, no_wrap=True, overflow="ignore")
    for index in range(len(result.rows)):
        shown.add_row(*(cells[index + 1] for cells in fits.values()))
    return shown


def text(study: dict[str, Any], records: Sequence[dict[str, Any]]) -> str:
    """The table as plain text, as wide as the terminal, and at least 80 columns."""
    with extra("tables need"):
        from rich.console import Console
    out = io.StringIO()
    console = Console(file=out, width=max(80, Console().width))
    console.print(table(study, records, width=console.width))
    return out.getvalue()


def _ranked(result: Summary) -> list[Column]:
    """All columns, from the one that a narrow terminal needs most."""
    method, test, gap, word, size, fewer, rate = quality(result)
    _, steps, to_target, *every = speed(result)
    word = word._replace(cell=lambda row: words.verdict(row).partition(":")[0])
    order = [method, test, word, fewer, gap, steps, *every[1::2], rate, size]
    return [*order, to_target, *every[::2]]


def _that_fit(every: Mapping[Column, list[str]], width: int) -> dict[Column, list[str]]:
    """Columns with their cells; each takes three characters more than its text."""
    chosen, used = {}, 0
    for column, cells in every.items():
        lines = [line for text in cells for line in text.split("\n")]
        wide = max(map(len, lines)) + 3
        if used + wide <= width or not chosen:
            chosen[column] = cells
            used += wide
    return chosen


def _fitted(column: Column, rows: Sequence[Row], width: int) -> list[str]:
    """The heading and the cells; a name of more than half the width is on lines."""
    cells = [column.cell(row) for row in rows]
    if column.title == "method":
        cells = [wrapped(name, width // 2) for name in cells]
    longest = max([len(cell) for cell in cells], default=0)
    return [wrapped(column.title, max(longest, 9)), *cells]


SPECIAL = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "\u00b1": r"$\pm$",
        "\u00b5": r"$\mu$",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    }
)


def tex(text: str) -> str:
    r"""Text for LaTeX.

    Example:
      >>> from relaxjax.compare.page._tables import tex
      >>> print(tex("power_sgd 5% {a}"))
      power\_sgd 5\% \{a\}
    """
    return text.translate(SPECIAL)


def latex(result: Summary) -> str:
    """A `tabular` with the rules of booktabs, without caption."""
    _, steps, _, *every = speed(result)
    columns = [*quality(result)[:-1], steps, *every[1::2]]
    kinds = "".join("r" if column.right else "l" for column in columns)
    lines = [[column.title for column in columns]]
    lines += [[column.cell(row) for column in columns] for row in result.rows]
    head, *body = (" & ".join(map(tex, cells)) + r" \\" for cells in lines)
    return "\n".join(
        [
            r"% \usepackage{booktabs}; seconds are predicted, all else is measured",
            rf"\begin{{tabular}}{{{kinds}}}",
            r"\toprule",
            head,
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )

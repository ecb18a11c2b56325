"""The report of a study: a page, a table for LaTeX, Markdown, and pictures.

`report.html` is one file that loads nothing; its tables sort at a click.
"""

import io
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from relaxjax.compare._figures import figures
from relaxjax.compare._records import Record, write_whole
from relaxjax.compare._summary import Row, rows, target_of, unequal_budgets

_EXTRA = "reports need the command-line extra: pip install 'relaxjax[cli]'"


def write(folder: Path, study: Mapping[str, Any], records: Sequence[Record]) -> None:
    """Writes report.html, report.md, table.tex and a PNG of each figure.

    Args:
      folder: the study's folder.
      study: what `study.json` holds.
      records: records of its runs.

    Raises:
      ImportError: matplotlib or jinja2 is missing.
    """
    try:
        from jinja2 import Environment
    except ImportError as error:
        raise ImportError(_EXTRA) from error
    found = rows(study, records)
    drawn = figures(study, found)
    head, body = cells(study, found)
    told = {
        "study": study,
        "head": head,
        "body": body,
        "notes": notes(study, records, found),
        "figures": {name: svg for name, (svg, _) in drawn.items()},
        "about": about(study),
    }
    page = files("relaxjax.compare").joinpath("report.html.j2").read_text()
    html = Environment(autoescape=True).from_string(page).render(told)
    write_whole(folder / "report.html", html)
    write_whole(folder / "report.md", _markdown(told, drawn))
    write_whole(folder / "table.tex", _latex(head, body))
    for name, (_, png) in drawn.items():
        (folder / _file_of(name)).write_bytes(png)


def table(study: Mapping[str, Any], records: Sequence[Record]) -> str:
    """The table as plain text, for a terminal of any width."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    head, body = cells(study, rows(study, records))
    shown = Table(box=box.SIMPLE_HEAD, show_edge=False)
    for i, column in enumerate(head):
        shown.add_column(column, no_wrap=not i, justify="left" if not i else "right")
    for line in body:
        shown.add_row(*line)
    out = io.StringIO()
    Console(file=out, width=max(80, Console().width)).print(shown)
    return out.getvalue()


def cells(
    study: Mapping[str, Any], found: Sequence[Row]
) -> tuple[list[str], list[list[str]]]:
    """The head and the cells of the table."""
    metric = study["task"]["metric_name"].replace("_", " ")
    networks = [network["name"] for network in study["networks"]]
    head = ["relaxation", "rate", f"test {metric}", "worse by [95 %]", "verdict"]
    head += ["bytes a step", "fewer", "steps to target"]
    head += [f"s to target, {name}" for name in networks]
    plain = found[0].bytes_per_step
    body = []
    for row in found:
        options = "".join(f", {k}={v:g}" for k, v in row.options.items())
        sent = row.bytes_per_step
        body.append(
            [
                row.method,
                _or_dash(row.learning_rate, "{:.4g}") + options,
                _or_dash(row.mean, "{:.4g}") + _or_dash(row.spread, " ± {:.2g}", ""),
                _interval(row),
                row.verdict,
                _or_dash(sent, "{:,.0f}"),
                f"{plain / sent:.3g}x" if plain and sent else "-",
                _or_dash(row.steps_to_target, "{:.0f}", "not reached"),
                *(_or_dash(row.seconds_to_target[n], "{:.3g}") for n in networks),
            ]
        )
    return head, body


def notes(
    study: Mapping[str, Any], records: Sequence[Record], found: Sequence[Row]
) -> list[str]:
    """What a reader has to know beside the table, in sentences."""
    metric = study["task"]["metric_name"].replace("_", " ")
    target = target_of(study, records)
    runs, stopped = found[0].tuned, sum(row.stopped for row in found)
    said = [
        f"Learning rates were chosen by the validation {metric} of {runs} runs for "
        f"each relaxation, on a seed that is not reported; {stopped} of these runs "
        "stopped at half, where they were worse than the best had been at a tenth."
        if runs
        else "Nothing was tuned: each relaxation ran at its usual learning rate.",
        f"Validation data: {study['task']['split_note']}. The test {metric} was read "
        f"once, at the end of runs with seeds {_listed(study['seeds'])}.",
        "Intervals are Student's, of differences seed by seed; verdicts are corrected "
        "by Holm's method over all relaxations.",
        f"The target is a validation {metric} of {target:.4g}; steps to it are the "
        "median over seeds, interpolated between points of the curve."
        if target is not None
        else "There is no target yet: the baseline has not run.",
        "Bytes are counted in the program. Seconds are predicted: a step's computation "
        f"of {1e3 * study['compute_seconds']:.3g} ms ({study['compute_source']}), and "
        "messages by relaxjax.plan without overlap"
        + "".join(
            f"; those of {label} are its traced bytes as one message"
            for label, source in study["seconds_source"].items()
            if source != "plan"
        )
        + ".",
        unequal_budgets(found),
    ]
    of = len(study["seeds"])
    if missing := [row.method for row in found if len(row.tests) < of]:
        said.append(f"Not all runs are there: {_listed(missing)}.")
    return [sentence for sentence in said if sentence]


def about(study: Mapping[str, Any]) -> dict[str, str]:
    """The conditions."""
    task, data = study["task"], study["task"]["data"]
    return {
        "task": f"{task['name']}, {task['params']:,} params, {task['file']}",
        "data": f"{data['bytes']:,} bytes, SHA-256 {data['sha256'][:16]}",
        "run": f"{study['steps']} steps of {study['batch_size']} rows on "
        f"{study['workers']} emulated workers",
        **{k: str(v) for k, v in study["conditions"].items()},
        "relaxjax": study["version"],
        "command": study["command"] or "relaxjax.compare.Study(...).run(...)",
    }


def _interval(row: Row) -> str:
    found = row.difference
    if found is None:
        return "-"
    if found.low is None:
        return f"{found.mean:+.3g}"
    return f"{found.mean:+.3g} [{found.low:+.3g}, {found.high:+.3g}]"


def _or_dash(value: float | None, shape: str, without: str = "-") -> str:
    return without if value is None else shape.format(value)


def _listed(names: Sequence[Any]) -> str:
    return ", ".join(map(str, names))


def _file_of(name: str) -> str:
    return name.replace(",", "-").replace(" ", "-") + ".png"


def _markdown(told: Mapping[str, Any], drawn: Mapping[str, Any]) -> str:
    head, body = told["head"], told["body"]
    lines = [f"# {told['study']['task']['name']}", ""]
    lines += ["| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head))]
    lines += [
        "| " + " | ".join(x.replace("|", "\\|") for x in row) + " |" for row in body
    ]
    lines += ["", *(f"- {note}" for note in told["notes"]), ""]
    lines += [f"![{name}]({_file_of(name)})\n" for name in drawn]
    lines += [f"- {k}: `{v}`" for k, v in told["about"].items()]
    return "\n".join(lines) + "\n"


def _latex(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    columns = "l" + "r" * (len(head) - 1)
    lines = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule"]
    lines += [" & ".join(map(_escaped, head)) + r" \\", r"\midrule"]
    lines += [" & ".join(map(_escaped, row)) + r" \\" for row in body]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _escaped(text: str) -> str:
    for character in "\\&%$#_{}":
        escape = r"\textbackslash " if character == "\\" else "\\" + character
        text = text.replace(character, escape)
    return text.replace("±", r"$\pm$")

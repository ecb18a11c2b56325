"""The report of a study: one page, one text, one table for LaTeX, and pictures."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relaxjax._core.foreign._extra import extra
from relaxjax._core.foreign._folders import local_path, write_whole
from relaxjax.compare.kept._summary import Summary, summary
from relaxjax.compare.page import _figures, _map, _svg, _words
from relaxjax.compare.page._styles import LINES, styles
from relaxjax.compare.page._tables import Column, latex, quality, speed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FOLDER = "figures"
"""Where the pictures are, inside the folder of the report."""


def write(
    folder: str | Path,
    study: dict[str, Any],
    records: Sequence[dict[str, Any]],
    *,
    lines: int | None = LINES,
) -> list[Path]:
    """Writes `report.html`, `report.md`, `table.tex`, and `figures/` as SVG and PNG.

    The page needs no network and no other file. It follows a light or dark browser.

    Args:
      folder: where to; it is made if it is not there.
      study: what is in `study.json`.
      records: lines of `results.jsonl`.
      lines: the most lines in a figure; None draws all methods.

    Returns:
      The files written.

    Raises:
      ImportError: matplotlib, scipy or jinja2 is missing.
    """
    folder = local_path("report", "folder", folder)
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    result = summary(study, records)
    pictures = _pictures(result, lines)
    written = []
    elements = []
    for name, (figure, caption) in pictures.items():
        element = _svg.svg(figure, title=caption, prefix=name)
        elements.append({"name": name, "svg": element, "caption": caption})
        image, drawing = (folder / FOLDER / f"{name}{end}" for end in (".png", ".svg"))
        _svg.png(figure, image)
        write_whole(drawing, _svg.standalone(element) + "\n")
        written += [image, drawing]
    facts = _facts(result, records, elements)
    texts = {
        "report.html": _rendered("report.html.j2", facts, html=True),
        "report.md": _rendered("report.md.j2", facts, html=False),
        "table.tex": latex(result),
    }
    for name, text in texts.items():
        write_whole(folder / name, text)
        written.append(folder / name)
    return written


def _pictures(result: Summary, lines: int | None) -> dict[str, tuple["Figure", str]]:
    """Figures with captions, by the names of their files."""
    found, name = {}, result.metric_name
    for axis in _figures.axes_of(result):
        drawn = [row.method for row in _figures.shown(result, axis, lines)]
        if drawn:
            caption = (
                f"Validation {name} against {' '.join(axis.label.split())}: "
                "means over the seeds, and their range."
            )
            found[axis.name] = (
                _figures.curves(result, axis, lines=lines),
                caption + _left_out(result, axis, drawn),
            )
    grid = result.study.get("map")
    if grid and any(row.steps_to_target is not None for row in result.rows):
        caption = "Who reaches the target first, over bandwidth and latency."
        found["winners"] = _map.winners_map(result, grid), caption
    return found


def _left_out(result: Summary, axis: _figures.Axis, drawn: Sequence[str]) -> str:
    kinds: dict[str, list[str]] = {}
    for row in result.rows:
        if row.method in drawn:
            continue
        reason = "for want of room"
        if not row.curve.steps:
            reason = "without a finished run"
        elif row.method not in axis.each:
            reason = "which sends nothing" if axis.name == "bytes" else "unpredicted"
        kinds.setdefault(reason, []).append(row.method)
    words = "; ".join(f"{', '.join(names)} ({why})" for why, names in kinds.items())
    return f" Not drawn: {words}." if words else ""


def _facts(
    result: Summary, records: Sequence[dict[str, Any]], figures: list[dict[str, str]]
) -> dict[str, Any]:
    study, task = result.study, result.study["task"]
    look = styles(study["methods"])
    tables = {"Quality and bytes": quality(result)}
    tables["The way to the target; seconds are predicted"] = speed(result)
    return {
        "title": f"{task['name']}: {len(study['methods'])} methods compared",
        "conclusion": _words.conclusion(result),
        "remarks": result.remarks,
        "tables": {name: _cells(result, columns) for name, columns in tables.items()},
        "figures": figures,
        "folder": FOLDER,
        "colors": {
            name: f"var(--c{s.color[1:]},{s.color})" for name, s in look.items()
        },
        "reading": _words.reading(result),
        "conditions": _conditions(result, records),
        "command": study.get("command", ""),
        "light": _svg.variables("light"),
        "dark": _svg.variables("dark"),
    }


def _cells(result: Summary, columns: Sequence[Column]) -> dict[str, Any]:
    return {
        "columns": [(column.title, column.right) for column in columns],
        "rows": [
            [(column.cell(row), column.order(row), column.right) for column in columns]
            for row in result.rows
        ],
    }


def _conditions(
    result: Summary, records: Sequence[dict[str, Any]]
) -> list[tuple[str, str]]:
    study, task = result.study, result.study["task"]
    data = task.get("data") or {}
    networks = [
        f"{n['name']} ({_words.scaled(n['latency'], 's')}, "
        f"{8e-9 * n['bandwidth']:.3g} Gbit/s)"
        for n in study.get("networks", [])
    ]
    found = [
        ("task", f"{task['name']}, {task.get('params', 0):,} parameters"),
        ("data", f"{data.get('bytes', 0):,} bytes, SHA-256 {data.get('sha256', '-')}"),
        ("task file", f"{task['file']}, SHA-256 {task.get('file_sha256')}")
        if task.get("file_sha256")
        else ("task file", "built in"),
        (
            "training",
            f"{study['steps']} steps, {study['workers']} workers, "
            f"batches of {study['batch_size']}",
        ),
        ("report seeds", ", ".join(map(str, study["seeds"]))),
        ("tuning", _words.tuning(result, records)),
        ("networks", "; ".join(networks) or "none"),
        ("relaxjax", str(study.get("version", "-"))),
    ]
    extras = study.get("conditions", {})
    return found + [
        (name.replace("_", " "), str(value)) for name, value in extras.items()
    ]


def _rendered(template: str, facts: dict[str, Any], *, html: bool) -> str:
    with extra("reports need"):
        import jinja2
        import markupsafe
    place = jinja2.PackageLoader("relaxjax.compare", ".")
    environment = jinja2.Environment(
        loader=place,
        autoescape=html,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["breaks"] = lambda name: markupsafe.Markup("<wbr>").join(
        re.split(r"(?=[+@])", name)
    )
    return environment.get_template(template).render(facts)

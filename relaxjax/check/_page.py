"""The plot of loss and bytes, and one HTML page that holds everything.

All functions take the report that `report_of` returns, or a part of it.
"""

import base64
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from relaxjax._core.foreign._html import table

_STYLE = (
    "body{font:15px/1.45 system-ui,sans-serif;max-width:70rem;margin:2rem auto;"
    "padding:0 1rem;color:#222}table{border-collapse:collapse;margin:.6rem 0 1.4rem}"
    "td,th{border:1px solid #ccc;padding:.25rem .6rem;text-align:left;"
    "vertical-align:top}.no{background:#fbdcdc}.yes{background:#e2f3e2}"
    "code{white-space:pre-wrap}img{max-width:100%}"
)
MARKS = {True: "holds", False: "refuted", None: "reported"}


def plot(report: dict[str, Any], path: Path) -> None:
    """Draws loss and held-out metric against bytes, a point for each run, as a PNG."""
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    panels = figure.subplots(1, 2)
    metric = report["conditions"]["metric"]
    names = {"loss": "training loss, last tenth", "metric": f"held-out {metric}"}
    rows = [row for row in report["quality"] if "error" not in row]
    for panel, (key, name) in zip(panels, names.items(), strict=True):
        for row in rows:
            if row[key] is not None:
                marker, size = ("*", 14) if row["subject"] is not None else ("o", 7)
                sent = max(row["bytes_per_step"], 1)
                panel.plot(sent, row[key], marker, markersize=size, label=row["label"])
        panel.set(xlabel="bytes per step of the busiest worker", ylabel=name)
        panel.grid(alpha=0.3)
        if rows:
            panel.set_xscale("log")
    if rows:
        panels[0].legend(fontsize="small")
    steps, task = (report["conditions"][key] for key in ("steps", "task"))
    figure.suptitle(f"{report['file']}: {steps} steps of {task}, 8 workers")
    figure.savefig(path, dpi=120)


def page(report: dict[str, Any], png: bytes) -> str:
    """One HTML page without links: verdicts, bytes, codec times and the plot."""
    image = base64.b64encode(png).decode()
    verdict = "all laws hold" if report["holds"] else "some law is refuted"
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        f"<title>{escape(report['file'])}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(report['file'])}: {verdict}</h1>",
        *(_section(subject) for subject in report["subjects"]),
        "<h2>Loss and bytes</h2>",
        _table(("run", "bytes per step", "loss", "held out"), quality_rows(report)),
        f"<img alt='loss against bytes' src='data:image/png;base64,{image}'>",
        "<h2>Conditions</h2>",
        _table(("", ""), report["conditions"].items()),
        f"<p>{report['seconds']:.0f} s in all.</p></body></html>",
    ]
    return "\n".join(parts) + "\n"


def _section(subject: dict[str, Any]) -> str:
    heads = ("bytes of", "elements", "stated", "traced", "compiled")
    keys = ("what", "size", "stated", "traced", "compiled")
    parts = [
        f"<h2>{escape(subject['name'])}, a {subject['kind']}</h2>",
        _laws(subject["laws"]),
        _table(heads, [[row[key] for key in keys] for row in subject["bytes"]]),
    ]
    if subject["codec"]:
        parts.append(f"<p>{escape(codec_line(subject['codec']))}</p>")
    return "\n".join(parts)


def _laws(laws: Sequence[dict[str, Any]]) -> str:
    lines = ["<table><tr><th>law</th><th></th><th>found</th></tr>"]
    for law in laws:
        kind = {True: "yes", False: "no", None: ""}[law["holds"]]
        case = law["counterexample"]
        more = f"<br><code>{escape(case['text'])}</code>" if case else ""
        lines.append(
            f"<tr class='{kind}'><td>{escape(law['law'])}</td>"
            f"<td>{MARKS[law['holds']]}</td><td>{escape(law['found'])}{more}</td></tr>"
        )
    return "\n".join([*lines, "</table>"])


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    return table(heads, [[shown(x) for x in row] for row in rows])


def quality_rows(report: dict[str, Any]) -> list[tuple[object, ...]]:
    """Label, bytes per step, loss and metric of each run; or label and error."""
    keys = ("label", "bytes_per_step", "loss", "metric")
    return [
        (row["label"], row["error"], "", "")
        if "error" in row
        else tuple(row[key] for key in keys)
        for row in report["quality"]
    ]


def codec_line(codec: dict[str, Any]) -> str:
    """Rates of a codec in words: medians, and the quartiles of the shares."""
    sides = []
    for side in ("encode", "decode"):
        median, low, high = codec[f"{side} share"]
        share = f"{median:.3f} [{low:.3f}, {high:.3f}] of x + 1"
        sides.append(f"{side} {codec[f'{side} GB/s']:.2f} GB/s, {share}")
    return "; ".join(sides)


def shown(cell: object) -> str:
    """A cell of a table, as text."""
    if isinstance(cell, float):
        return f"{cell:,.0f}" if cell >= 100 else f"{cell:.4g}"
    return "-" if cell is None else f"{cell:,}" if isinstance(cell, int) else str(cell)

"""Islands under kills; with a wrong member: in bounds, and under other merges."""

import json
from typing import Any

from scripts.tables.rows import DOCS, heads, result, row

KILLS = {
    "1-in-2-min": "1 in 120 s (`--minutes 2 --kill-every 60`)",
    "8-in-3-min": "8 in 180 s",
    "8-in-90-s": "8 in 90 s (`--minutes 1.5 --kill-every 10`)",
}
WAYS = ("islands", "fail-stop")

MERGES = {
    "rda": '`"rda"` in bounds',
    "rda, absent": '`"rda"` in bounds, without the wrong island',
    "mean, bare": '`"mean"`, without bounds',
    "rda, bare": '`"rda"`, without bounds',
}


def wrong_member() -> list[str]:
    """The same islands with the wrong one and without it."""
    runs = result("wrong-member")["rows"]
    shown: dict[str, list[str]] = {
        "goodput of the four others": [f"{x['goodput_of_others']:.3f}" for x in runs],
        "loss": [f"{x['loss']:.4f}" for x in runs],
        "merges, made again to the bit": [_again(x, "merges") for x in runs],
        "contributions, made again to the bit by their own steps": [
            _again(x, "contributions") for x in runs
        ],
        "contributions of the wrong island: merged, left out": [
            f"{_sum(x, 'merged')}, {_sum(x, 'left_out')}" if x["wrong_merged"] else ""
            for x in runs
        ],
        "contributions of the others that were left out": [
            f"{x['others_left_out']}" for x in runs
        ],
    }
    lines = heads('ten minutes, `merge=clipped("all")`', ["with it", "without it"])
    return lines + [row(name, cells) for name, cells in shown.items()]


def _again(run: dict[str, Any], what: str) -> str:
    return f"{run['replay'][what]}, {run['replay'][what + '_equal']}"


def _sum(run: dict[str, Any], how: str) -> int:
    return sum(run[f"wrong_{how}"].values())


def other_merges() -> list[str]:
    """Four minutes by other merges, in bounds and without them."""
    columns = ["goodput of the others", "loss", "largest param"]
    lines = heads("four minutes", columns)
    for run in result("wrong-member-beside")["rows"]:
        numbers = run["loss"], run["largest_param"]
        cells = [f"{x:.3g}" if x < 1e6 else f"{x:.0e}" for x in numbers]
        lines.append(
            row(MERGES[run["run"]], [f"{run['goodput_of_others']:.3f}", *cells])
        )
    return lines


def goodput() -> list[str]:
    """Islands, fail-stop training and torchft under the same kills."""
    columns = ["islands", "fail-stop", "torchft"]
    longest = "longest from merge to merge, islands, torchft"
    lines = heads("kills", [*columns, longest])
    for name, shown in KILLS.items():
        run = _chaos(f"kills-{name}") | {
            "torchft": _chaos(f"torchft-{name}")["torchft"]
        }
        cells = [f"{run[way]['goodput']:.3f}" for way in columns]
        waits = (run[way]["pause"]["longest"] for way in ("islands", "torchft"))
        lines.append(row(shown, [*cells, ", ".join(f"{x:.1f} s" for x in waits)]))
    return lines


def restarts() -> list[str]:
    """Seconds until a killed process trains again."""
    run = _chaos("kills-8-in-3-min")
    found = [run[way]["restarts"] for way in WAYS]
    back = [f"{x['median']:.1f} s, {max(x['back_after']):.1f} s" for x in found]
    born = [
        f"{x['from_birth_to_training']:.1f} s, {x['compilation']:.1f} s" for x in found
    ]
    return [
        *heads(KILLS["8-in-3-min"], WAYS),
        row("a killed process trains again after, median and at most", back),
        row("from a process's start to its first step, with compilation of", born),
    ]


def _chaos(name: str) -> dict[str, Any]:
    return json.loads((DOCS / "chaos" / f"{name}.json").read_text())

"""Islands with a wrong member, under kills: in bounds, and under other merges."""

from typing import Any

from scripts.tables.rows import heads, result, row

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

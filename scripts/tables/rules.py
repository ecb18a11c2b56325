"""Rules of merges where nobody is wrong: what they cost, and how long moves are."""

from typing import Any

from scripts.tables.rows import heads, result, row, within

CASES = [(n, data) for n in (8, 16) for data in ("same data", "own labels")]
SHOWN = {
    "clipped()": "`clipped()`",
    'clipped("all")': '`clipped("all")`',
    '"rda"': '`"rda"`',
    "rda()": "`rda()`",
    "median()": "`median()`",
    "trimmed(1)": "`trimmed(1)`",
    "geometric_median()": "`geometric_median()`",
    "centered_clip(radius)": "`centered_clip(radius)`",
    "nearest(1, median())": "`nearest(1, median())`",
}
FAST = {
    "mean, cap 2, one fast": "one fast: the mean, `cap=2`",
    '"rda", cap 2, one fast': '`"rda"`, `cap=2`',
    'clipped("all"), one fast': '`clipped("all")`',
    '"rda", cap 2, half fast': 'half fast: `"rda"`, `cap=2`',
    'clipped("all"), half fast': '`clipped("all")`',
}


def tax() -> list[str]:
    """Points of accuracy over the mean."""
    found = _by_case("rows")
    accuracies = [found["mean", *case]["accuracies"] for case in CASES]
    means = [f"{100 * sum(each) / len(each):.1f} %" for each in accuracies]
    lines = [*_heads("rule"), row('`"mean"`, accuracy', means)]
    return lines + _points(found, SHOWN)


def fast() -> list[str]:
    """The same where workers take unlike numbers of steps."""
    return _heads("") + _points(_by_case("bounds"), FAST)


def lengths() -> list[str]:
    """How long contributions are, and what it costs to leave long ones out."""
    found, bounds = _by_case("rows"), _by_case("bounds")
    titles = [
        "longest, over the median",
        "longer than ten times",
        "points with `limit=10`",
    ]
    lines = heads("merge, workers, data", titles)
    for name in ("mean", '"rda"'):
        for n, data in CASES:
            own = found[name, n, data]
            points = within(bounds[f"{name}, limit 10", n, data]["points"])
            cells = [f"{own['longest']:.0f}", f"{100 * own['beyond']:.1f} %", points]
            lines.append(row(f"`{name}`, {n}, {data}", cells))
    return lines


def _by_case(part: str) -> dict[tuple[str, int, str], Any]:
    rows = result("rules")[part]
    return {(each["rule"], each["workers"], each["data"]): each for each in rows}


def _heads(first: str) -> list[str]:
    return heads(first, [f"{n}, {data}" for n, data in CASES])


def _points(found: dict[tuple[str, int, str], Any], names: dict[str, str]) -> list[str]:
    cells = {name: [found[name, *case]["points"] for case in CASES] for name in names}
    return [row(shown, map(within, cells[name])) for name, shown in names.items()]

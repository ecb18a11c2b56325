"""The planner's choice over the best measured method, between hosts."""

from typing import Any

from scripts.tables.rows import heads, result, row


def table() -> list[str]:
    """Mean and worst over models that were not fitted to, by what may be chosen."""
    runs = result("regret")["runs"]
    first, *_ = runs
    titles = [f"fitted to {_models(way['fitted'])}" for way in first["ways"]]
    lines = heads("may be chosen", titles)
    for run in runs:
        cells = [_both(way, "regret") for way in run["ways"]]
        lines.append(row(_allowed(run["conditions"]["without"]), cells))
    for rule, name in (("least", "what sends least"), ("plain", "plain all-reduce")):
        cells = [_both(way, rule) for way in first["ways"]]
        lines.append(row(f"always {name}, beside all", cells))
    return lines


def _models(names: list[str]) -> str:
    """Layers x width."""
    return " and ".join(name.replace(" layers of ", " x ") for name in names)


def _allowed(without: list[str]) -> str:
    given = " ".join(f"--without {name}" for name in without)
    return f"`{given}`" if given else "all"


def _both(way: Any, rule: str) -> str:
    found = way["summary"]["unseen"]
    return f"{found[f'{rule}_mean']:.2f}, {found[f'{rule}_worst']:.2f}"

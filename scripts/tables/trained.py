"""Relaxations after optimizers, from the files of `benchmarks.training.study`."""

from typing import Any

from scripts.tables.rows import heads, result, row, within

MEAN = " outer_learning_rate=1 outer_momentum=0"
TASKS = {"digits": "digits", "chars": "characters"}


def equal_bytes() -> list[str]:
    """The best of each task within each budget of bytes."""
    found = result("equal-bytes")
    best = [f"best on {shown}" for shown in TASKS.values()]
    lines = heads("bytes at most", [x for each in best for x in (each, "worse, %")])
    for budget in map(int, found["targets"]):
        cells: list[str] = []
        for task in TASKS:
            fit = [x for x in _lossy(found, task) if x["share"] <= 1 / budget]
            least = min(fit, key=lambda x: x["worse"][0])
            cells += [_named(least), _percent(least)]
        lines.append(row(f"1/{budget}", cells))
    return lines


def every_one(name: str, task: str) -> list[str]:
    """All relaxations of a task."""
    found = result(name)
    lines = heads("relaxation", ["optimizer", "rate", "bytes", "metric", "worse, %"])
    for each in found["rows"]:
        if each["task"] != task:
            continue
        mean = sum(each["metrics"]) / len(each["metrics"])
        lossy = each["name"] != "all_reduce"
        cells = [each["parent"], f"{each['rate']:.2g}", f"1/{1 / each['share']:.3g}"]
        worse = _percent(each) if lossy else ""
        lines.append(row(_named(each), [*cells, f"{mean:.4g}", worse]))
    return lines


def weights() -> list[str]:
    """Bits per character of sharded weights in codes, by seed."""
    first, *rest = result("codes-of-weights")["rows"]
    seeds = [f"seed {seed}" for seed in range(len(first["bits"]))]
    lines = heads("", seeds)
    lines.append(row(first["codes"], [f"{bits:.4f}" for bits in first["bits"]]))
    for each in rest:
        both = zip(each["bits"], each["worse, %"], strict=True)
        cells = [f"{bits:.4f} ({worse + 0.0:+.2f} %)" for bits, worse in both]
        lines.append(row(each["codes"], cells))
    return lines


def _named(each: Any) -> str:
    """Its spelling; a plain mean without the outer rates that say so."""
    return f"`{each['name'].removesuffix(MEAN)}`"


def _lossy(found: Any, task: str) -> list[Any]:
    rows = [x for x in found["rows"] if x["task"] == task and not x["diverged"]]
    return [x for x in rows if x["name"] != "all_reduce"]


def _percent(each: Any) -> str:
    return within(100 * x + 0.0 for x in each["worse"])

"""Seconds of a process, and steps that a plan chose between on one machine."""

import statistics

from scripts.tables.rows import heads, result, row


def startup() -> list[str]:
    """How long processes take to start, with their quartiles."""
    lines = heads("process", ["seconds", "quartiles"])
    for name, seconds in result("startup")["seconds"].items():
        low, middle, high = statistics.quantiles(seconds, n=4, method="inclusive")
        cells = [f"{middle:.3f}", f"{low:.3f} to {high:.3f}"]
        lines.append(row(f"`{name}`", cells))
    return lines


def planned() -> list[str]:
    """The plan's choice, beside what ran with it, in milliseconds."""
    lines = heads("task", ["`jax.jit`", "the choice", "predicted", "best other"])
    for run in result("planned")["runs"]:
        how = run["conditions"]
        first, *others = run["after"]["ranking"]
        other = min(others, key=lambda each: each["measured_ms"])
        cells = [
            f"{1000 * run['jit_seconds']:.1f}",
            f"`{first['relaxation']}` {first['measured_ms']:.1f}",
            f"{first['step_ms']:.1f}",
            f"`{other['relaxation']}` {other['measured_ms']:.1f}",
        ]
        name = f"{how['task']}, {how['workers']} workers, {how['batch_size']} rows"
        lines.append(row(name, cells))
    return lines

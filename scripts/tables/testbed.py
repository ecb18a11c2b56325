"""Orders of pulls between servers and workers that are processes."""

from typing import Any

from scripts.tables.rows import heads, result, row, within


def gains() -> list[str]:
    """Seconds and gains over the mean random order, seen and predicted."""
    titles = [
        *("Mbit/s", "random, s (predicted)", "TAC, s (predicted)"),
        *("TIC, %", "TAC, %", "best, %", "TAC predicted, %"),
        "tau, of medians / of minima",
    ]
    lines = heads("workers / servers", titles)
    for cell in result("testbed")["cells"]:
        found = cell["summary"]
        taus = found["tau"], found["tau_least"]
        cells = [
            f"{8e-6 * cell['rate']:.0f}",
            f"{found['random']:.3f} ({found['random_predicted']:.3f})",
            f"{found['median']['tac']:.3f} ({cell['predicted']['tac']:.3f})",
            *(_gain(found["gain"][order]) for order in ("tic", "tac", "best")),
            f"{100 * found['gain_predicted']['tac']:.0f}",
            " / ".join(f"{tau:.2f}" for tau in taus),
        ]
        name = f"{cell['mode']}, {cell['workers']} / {cell['servers']}"
        lines.append(row(name, cells))
    return lines


def stragglers() -> list[str]:
    """How long the fastest worker waits for the slowest one."""
    lines = heads("workers / servers", ["no order", "TAC", "times as short"])
    for cell in result("testbed")["cells"]:
        if cell["workers"] == 1:
            continue
        found = cell["summary"]["straggler"]
        cells = [f"{found['none']:.3f}", f"{found['tac']:.3f}"]
        name = f"{cell['mode']}, {cell['workers']} / {cell['servers']}"
        lines.append(row(name, [*cells, f"{found['none'] / found['tac']:.1f}"]))
    return lines


def _gain(points: Any) -> str:
    return within((100 * x for x in points), 0)

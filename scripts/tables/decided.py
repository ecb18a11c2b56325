"""Ranks that are decided while training, beside fixed ones."""

from scripts.tables.rows import heads, result, row, within

NAMES = {
    "power_sgd rank=1": "rank 1",
    "power_sgd rank=2": "rank 2",
    "power_sgd rank=4": "rank 4",
    "power_sgd ranks=accordion:low=1,high=4,every=100": "`accordion(1, 4)`",
    "power_sgd by l_greco, rank=2": "`l_greco(layers, 2)`",
    "power_sgd by time and size": "a table: lower with time and with size",
}
TITLES = ["bytes a step", "changes", "bits per character", "over rank 2, %"]


def ranks() -> list[str]:
    """Bytes, changes of the rank, and bits over fixed ranks."""
    found = {each["method"]: each for each in result("decided")["rows"]}
    lines = heads("ranks", [*TITLES, "over fixed ranks of its bytes, %"])
    for name, shown in NAMES.items():
        one = found[name]
        bits = sum(one["bits"]) / len(one["bits"])
        changes = " to ".join(str(n) for n in sorted({*_ends(one["changes"])}) if n)
        over = "" if name == "power_sgd rank=2" else within(one["over"], 2)
        line = "" if "rank=" in name and "by" not in name else within(one["line"], 2)
        cells = [f"{one['bytes a step']:,}", changes, f"{bits:.3f}", over, line]
        lines.append(row(shown, cells))
    return lines


def _ends(changes: list[int]) -> tuple[int, int]:
    return min(changes), max(changes)

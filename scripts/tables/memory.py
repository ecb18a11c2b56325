"""Memory of a process in the network lab, by method."""

from scripts.tables.rows import heads, result, row

NAMES = {
    "alone": "no communication",
    "all_reduce": "`all_reduce`",
    "power_sgd@two_shot rank=8 bits=8": "`power_sgd`, rank 8, 8 bits",
    "local_sgd@two_shot rank=16 bits=8 sync_every=4": "`local_sgd` of PowerSGD",
    "DDP alone": "DDP, no communication",
    "DDP fp32": "DDP, fp32",
    "DDP power_sgd rank=4": "DDP, PowerSGD's hook",
    "DDP local_sgd sync_every=8": "DDP, averaged models",
}


def peaks() -> list[str]:
    """The most that is resident: now, and before free pages were given back."""
    now, before = (
        {each["method"]: each["peak"] / 2**20 for each in result(name)["rows"]}
        for name in ("memory", "memory-before")
    )
    lines = heads("", ["MiB, at most", "before"])
    for name, shown in NAMES.items():
        lines.append(row(shown, [f"{now[name]:.0f}", f"{before[name]:.0f}"]))
    return lines

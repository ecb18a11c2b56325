"""Processor seconds to the end of the first step, and bytes of codes."""

from statistics import median

from scripts.tables.rows import heads, result, row

NAMES = {
    "by hand": "by hand",
    "all_reduce": "`all_reduce`",
    "gossip": "`gossip`",
    "diloco": "`diloco`",
    "8 bits": "8 bits with feedback",
    "power_sgd": "`power_sgd`, rank 4",
    "power_sgd in 8 bits": "the same in 8 bits",
}
TARGETS = {"by hand": "", "all_reduce": "1.3", "gossip": "1.6", "diloco": "1.6"}


def first_steps() -> list[str]:
    """On a mesh and emulated, with the target as a multiple of the step by hand."""
    now, before = (
        result("first-step")["seconds"],
        result("first-step-before")["seconds"],
    )
    lines = heads("", ["target", "on a mesh", "before", "emulated", "before"])
    for name, shown in NAMES.items():
        ran = [
            where[kind][name]
            for kind in ("mesh", "emulated")
            for where in (now, before)
        ]
        cells = [f"{median(each):.2f}" for each in ran]
        lines.append(row(shown, [TARGETS.get(name, "2.5"), *cells]))
    return lines


def payloads() -> list[str]:
    """Times fewer bytes than a float32 ring; codes of one size share a row."""
    found = result("payloads")["rows"]
    workers = max(each["workers"] for each in found)
    by_size: dict[str, list[str]] = {}
    for each in found:
        if each["workers"] == workers and each["compressor"] != "identity":
            fewer = f"{each['times fewer']['two_shot']:#.3g}".rstrip(".")
            by_size.setdefault(fewer, []).append(f"`{each['compressor']}`")
    lines = heads("codes", ["times fewer"])
    order = sorted(by_size, key=float)
    return lines + [row(", ".join(by_size[fewer]), [fewer]) for fewer in order]

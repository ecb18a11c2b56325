"""A link that changes in a run: the autopilot beside fixed choices and hindsight."""

from typing import Any

from scripts.tables.rows import heads, result, row

NAMES = {
    "autopilot": "`plan.autopilot`",
    "all_reduce": "always `all_reduce`, which ran first and is the first plan",
    "all_reduce+quantize8@two_shot": "always `all_reduce+quantize8`",
    "all_reduce+quantize4+ef14@two_shot": "always `all_reduce+quantize4+ef14`, the "
    "best fixed one",
}
TITLES = ["time over the best in hindsight", "seconds", "changes"]


def choices() -> list[str]:
    """Seconds to the loss over those in hindsight, in each round."""
    found: dict[str, dict[str, Any]] = {
        each["name"]: each for each in result("changing-link")["rows"]
    }
    lines = heads("choice", TITLES)
    for name, shown in NAMES.items():
        one = found[name]
        over = ", ".join(f"{x:.2f}" for x in one["over"])
        changes = sorted({len(table) - 1 for table in one["tables"]})
        ends = " to ".join(map(str, dict.fromkeys([changes[0], changes[-1]])))
        lines.append(row(shown, [over, f"{one['seconds']:.0f}", ends]))
    return lines

"""A link that changes in a run: the autopilot beside fixed choices and hindsight."""

from scripts.tables.rows import heads, result, row

NAMES = {
    "autopilot": "`plan.autopilot`",
    "all_reduce": "always `all_reduce`, which ran first and is the first plan",
    "all_reduce+quantize8@two_shot": "always `all_reduce+quantize8`",
    "all_reduce+quantize4+ef14@two_shot": "always `all_reduce+quantize4+ef14`, the "
    "best fixed one",
}
RUNS = {"changing-link": "50 slow steps", "changing-link-longer": "100 slow steps"}
TITLES = ["changes", *(f"{x}, over hindsight" for x in RUNS.values()), "seconds"]


def choices() -> list[str]:
    """Seconds to the loss over those in hindsight, in each round."""
    runs = [{each["name"]: each for each in result(name)["rows"]} for name in RUNS]
    lines = heads("choice", TITLES)
    for name, shown in NAMES.items():
        found = [run[name] for run in runs]
        over = [", ".join(f"{x:.2f}" for x in one["over"]) for one in found]
        counts = sorted({len(table) - 1 for one in found for table in one["tables"]})
        changes = " to ".join(map(str, dict.fromkeys([counts[0], counts[-1]])))
        lines.append(row(shown, [changes, *over, f"{found[0]['seconds']:.0f}"]))
    return lines

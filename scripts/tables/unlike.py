"""Workers whose data differ: decentralized methods, and optimizers that remember."""

import re

from scripts.tables.rows import heads, result, row, within

NAMES = {
    "gossip, torus": "`gossip`, torus 4 x 4",
    "CHOCO in signs, ring": "`gossip` in signs (CHOCO), ring",
}
ALPHAS = (1.0, 0.1, 0.01)


def points() -> list[str]:
    """Points of held-out accuracy over the all-reduce; corrected methods are bold."""
    rows = result("unlike-data")["rows"]
    found = {(each["method"], each["alpha"]): each for each in rows}
    lines = heads("", ["rate, at alpha 0.01", "alpha 1", "0.1", "0.01"])
    for name in dict.fromkeys(each["method"] for each in rows):
        kept = [found[name, alpha] for alpha in ALPHAS]
        rate, shown = f"{kept[-1]['rate']:.1g}", NAMES.get(name) or _quoted(name)
        if name == "all_reduce":
            means = [sum(x["accuracies"]) / len(x["accuracies"]) for x in kept]
            accuracies = [f"{100 * mean:.1f}" for mean in means]
            lines.append(row(f"{shown}, accuracy", [rate, *accuracies]))
            continue
        bold = "**" if kept[-1]["corrected"] else ""
        cells = [within(x["points"], 2) for x in kept]
        lines.append(row(f"{bold}{shown}{bold}", [rate, *cells]))
    return lines


def remembered() -> list[str]:
    """Losses above the optimum of an optimizer that remembers params."""
    titles = ["loss at the consensus, above the optimum", "at worker 0", "spread of z"]
    lines = heads("", titles)
    for each in result("remembered")["rows"]:
        kept = [each["at the consensus"], each["at worker 0"]]
        cells = [f"{x:.4f}" for x in kept]
        lines.append(
            row(_quoted(each["method"]), [*cells, f"{each['spread of z']:.1f}"])
        )
    return lines


def _quoted(name: str) -> str:
    """The method's name as code, and what follows it."""
    return re.sub(r"^\w+", r"`\g<0>`", name)

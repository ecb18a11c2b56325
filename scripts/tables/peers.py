"""Other packages: versions, what their codes lose, what is owed."""

from statistics import median

from scripts.tables.rows import heads, result, row


def versions() -> list[str]:
    """Versions, and how many tests passed beside each."""
    lines = heads("package", ["version", "tests", "passed"])
    for peer in result("peers")["peers"]:
        names, versions = (
            ", ".join(x) for x in zip(*peer["packages"].items(), strict=True)
        )
        test = f"`tests/peers/{peer['test']}.py`"
        lines.append(row(names, [versions, test, str(peer["passed"])]))
    return lines


def codes() -> list[str]:
    """What codes of 8 bits lose, the least of each column in bold."""
    lost = result("peers")["measured"]["codes"]
    kinds = list(next(iter(lost.values())))[1:]
    lines = heads("code", ["bits", *kinds])
    least = {kind: min(each[kind] for each in lost.values()) for kind in kinds}
    for name, each in lost.items():
        cells = [f"{each[kind]:.2g}" for kind in kinds]
        bold = [
            f"**{x}**" if each[k] == least[k] else x
            for x, k in zip(cells, kinds, strict=True)
        ]
        lines.append(row(name, [f"{each['bits']:.3f}", *bold]))
    return lines


def owed() -> list[str]:
    """What has not come out, medians of five streams."""
    found = result("peers")["measured"]["owed"]
    lines = heads("", ["owed after 30 steps", "least and most of five"])
    for name, each in found.items():
        cells = [f"{median(each):.2f}", f"{min(each):.2f} to {max(each):.2f}"]
        lines.append(row(f"`{name}`", cells))
    return lines

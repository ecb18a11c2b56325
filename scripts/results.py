"""Tables and pictures of pages, made from docs/results: figures are written once.

python scripts/results.py

A page has a table between two comments, `<!-- results: NAME -->` and `<!-- end -->`.
This writes what stands between them, and the pictures. A test says when one is stale.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

DOCS = Path(__file__).resolve().parents[1] / "docs"
PICTURE = DOCS / "pictures" / "time_to_loss.svg"
BLOCK = re.compile(r"(<!-- results: ([\w-]+) -->\n).*?(<!-- end -->)", re.S)
ALL_REDUCE = 2 * 3 / 4 * 4 * 3_241_600  # bytes that each of four hosts sends
GRAY = "#808080"  # is read on white and on black
SYSTEMS = {"relaxjax": "#0a84d0", "PyTorch": "#d9600a"}


class Point(NamedTuple):
    """A method between hosts at a rate.

    Attributes:
      rate: Mbit/s of each host's link.
      label: the method.
      seconds: to the loss: of the median, the shortest and the longest block.
    """

    rate: float
    label: str
    seconds: tuple[float, float, float]


def result(name: str) -> Any:
    """A file of docs/results."""
    return json.loads((DOCS / "results" / f"{name}.json").read_text())


def to_the_loss(found: Any) -> dict[float, dict[str, Point]]:
    """Each method that reaches the loss, by rate."""
    by_rate: dict[float, dict[str, Point]] = {}
    for rate in sorted({block["rate"] for block in found["blocks"]}):
        by_rate[rate] = {}
        for label, needed in found["steps_to_loss"].items():
            own = _seconds(found, rate, label)
            if own and needed < 1e9 and "alone" not in label:
                seconds = needed * median(own), needed * min(own), needed * max(own)
                by_rate[rate][label] = Point(rate, label, seconds)
    return by_rate


def _seconds(found: Any, rate: float, label: str) -> list[float]:
    here = (b for b in found["blocks"] if (b["rate"], b["method"]) == (rate, label))
    return [block["seconds"] for block in here]


def best(points: Mapping[str, Point], system: str) -> Point:
    """The first at the loss of a system."""
    own = [p for x, p in points.items() if x.startswith("DDP") == (system == "PyTorch")]
    return min(own, key=lambda point: point.seconds)


def network_steps() -> list[str]:
    """Seconds of a step, medians of blocks."""
    found = result("network")
    rates = sorted({block["rate"] for block in found["blocks"]})
    heads = [f"{rate:g} Mbit/s" for rate in rates]
    lines = _heads("", [*heads, "bytes a step, of an all-reduce"])
    labels = [label for label in found["steps_to_loss"] if label[:4] != "DDP "]
    theirs = [label for label in found["steps_to_loss"] if label[:4] == "DDP "]
    for label in ["alone", *labels, "DDP alone", *theirs]:
        cells = [f"{median(_seconds(found, rate, label)):.3f}" for rate in rates]
        stated = found["stated"].get(label)
        cells.append(f"{stated:,.0f}, 1/{ALL_REDUCE / stated:.0f}" if stated else "")
        name = label.replace("alone", "no communication")
        lines.append(_row(name if name != label else f"`{label}`", cells))
    return lines


def network_time() -> list[str]:
    """Seconds to the loss, and how the best of both systems compare."""
    found = result("network")
    by_rate = to_the_loss(found)
    lines = _heads("", [f"{rate:g} Mbit/s" for rate in by_rate])
    for label in found["steps_to_loss"]:
        points = [each.get(label) for each in by_rate.values()]
        if not any(points):
            continue
        cells = [f"{p.seconds[0]:.1f}" if p else "" for p in points]
        for i, each in enumerate(by_rate.values()):
            if label in {best(each, system).label for system in SYSTEMS}:
                cells[i] = f"**{cells[i]}**"
        lines.append(_row(f"`{label}`", cells))
    ratios = ("{:.2f} [{:.2f}, {:.2f}]".format(*v["time"]["ratio"])
              for v in found["verdicts"])  # fmt: skip
    lines.append(_row("relaxjax's best over PyTorch's", list(ratios)))
    return lines


def _heads(first: str, rest: list[str]) -> list[str]:
    return [_row(first, rest), "|---" * (len(rest) + 1) + "|"]


def _row(first: str, rest: list[str]) -> str:
    return f"| {first} | {' | '.join(rest)} |"


def peers() -> list[str]:
    """Versions, and how many tests passed beside each."""
    lines = _heads("package", ["version", "tests", "passed"])
    for peer in result("peers")["peers"]:
        names, versions = (
            ", ".join(x) for x in zip(*peer["packages"].items(), strict=True)
        )
        test = f"`tests/peers/{peer['test']}.py`"
        lines.append(_row(names, [versions, test, str(peer["passed"])]))
    return lines


def peer_codes() -> list[str]:
    """What codes of 8 bits lose, the least of each column in bold."""
    codes = result("peers")["measured"]["codes"]
    kinds = list(next(iter(codes.values())))[1:]
    lines = _heads("code", ["bits", *kinds])
    least = {kind: min(each[kind] for each in codes.values()) for kind in kinds}
    for name, each in codes.items():
        cells = [f"{each[kind]:.2g}" for kind in kinds]
        bold = [
            f"**{x}**" if each[k] == least[k] else x
            for x, k in zip(cells, kinds, strict=True)
        ]
        lines.append(_row(name, [f"{each['bits']:.3f}", *bold]))
    return lines


def peer_owed() -> list[str]:
    """What has not come out, medians of five streams."""
    owed = result("peers")["measured"]["owed"]
    lines = _heads("", ["owed after 30 steps", "least and most of five"])
    for name, each in owed.items():
        cells = [f"{median(each):.2f}", f"{min(each):.2f} to {max(each):.2f}"]
        lines.append(_row(f"`{name}`", cells))
    return lines


TABLES: Mapping[str, Callable[[], list[str]]] = {
    "network-steps": network_steps,
    "network-time": network_time,
    "peer-codes": peer_codes,
    "peer-owed": peer_owed,
    "peers": peers,
}


def filled(text: str) -> str:
    """A page with its tables."""
    return BLOCK.sub(lambda m: "\n".join([m[1].rstrip(), *TABLES[m[2]](), m[3]]), text)


def digest() -> str:
    """That of the picture's source."""
    return hashlib.sha256((DOCS / "results" / "network.json").read_bytes()).hexdigest()


def draw() -> None:
    """Seconds to the loss over rates; bars span the shortest and the longest block."""
    import matplotlib
    from matplotlib.figure import Figure

    found = result("network")
    by_rate = to_the_loss(found)
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "relaxjax"})
    figure = Figure(figsize=(7, 3.2), layout="constrained")
    axes = figure.subplots()
    for (system, color), mark, up in zip(SYSTEMS.items(), "os", (-16, 8), strict=True):
        points = [best(each, system) for each in by_rate.values()]
        middle = [p.seconds[0] for p in points]
        ends = [[abs(p.seconds[i] - p.seconds[0]) for p in points] for i in (1, 2)]
        axes.errorbar([*by_rate], middle, ends, marker=mark, color=color, capsize=3)
        axes.annotate(
            f"{system}'s best", (min(by_rate), middle[0]), (8, up),
            textcoords="offset points", color=color, fontsize=12,
        )  # fmt: skip
    axes.set(xscale="log", ylim=(0, None), xlabel="Mbit/s of each host's link")
    axes.set_ylabel(f"seconds to a loss of {found['loss']:g}")
    axes.set_xticks([*by_rate], [f"{rate:g}" for rate in by_rate])
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=GRAY)
    for one in (axes.xaxis.label, axes.yaxis.label):
        one.set_color(GRAY)
    for spine in axes.spines.values():
        spine.set_color(GRAY)
    about = {"Date": None, "Creator": None, "Source": digest()}
    figure.savefig(PICTURE, transparent=True, metadata=about)


def main() -> None:
    """Writes all of them."""
    for page in sorted(DOCS.glob("*.md")):
        text = page.read_text()
        if (now := filled(text)) != text:
            page.write_text(now)
            print(f"{page.name} is written anew")
    if not PICTURE.exists() or digest() not in PICTURE.read_text():
        draw()
        print(f"{PICTURE.name} is drawn anew")


if __name__ == "__main__":
    main()

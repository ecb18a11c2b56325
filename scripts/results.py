"""Tables and pictures of pages, made from docs/results: figures are written once.

python -m scripts.results

A page has a table between two comments, `<!-- results: NAME -->` and `<!-- end -->`.
This writes what stands between them, and the pictures. A test says when one is stale.
"""

import hashlib
import re

from scripts.tables import TABLES
from scripts.tables.network import SYSTEMS, best, to_the_loss
from scripts.tables.rows import DOCS, result

PICTURE = DOCS / "pictures" / "time_to_loss.svg"
BLOCK = re.compile(r"(<!-- results: ([\w-]+) -->\n).*?(<!-- end -->)", re.S)
GRAY = "#808080"  # is read on white and on black


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

"""What pages show beside what is printed."""

import math
import re
from pathlib import Path

GALLERY = Path(__file__).parent.parent / "docs" / "gallery.md"
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
SPEED = re.compile(r"steps/s|steps per second")
RELATIVE, ABSOLUTE = 0.1, 0.03  # of numbers with a point; others are exact


def same(shown: str, printed: str) -> bool:
    """Whether two lines agree, but for spaces, roundings and speeds."""
    shown, printed = (re.sub(r"\s+", " ", line).strip() for line in (shown, printed))
    if NUMBER.sub("0", shown) != NUMBER.sub("0", printed):
        return False
    pairs = zip(NUMBER.findall(shown), NUMBER.findall(printed), strict=True)
    values = [[float(text.replace(",", "")) for text in pair] for pair in pairs]
    points = ["." in text for text in NUMBER.findall(shown)]
    if SPEED.search(shown):  # the last number, or each number of a table's row
        values = [] if "per second" in shown else values[:-1]
    return all(
        math.isclose(a, b, rel_tol=RELATIVE, abs_tol=ABSOLUTE) if point else a == b
        for (a, b), point in zip(values, points, strict=False)
    )


def require_same(shown: str, printed: str) -> None:
    """Each line shown is printed, in order; dots stand for lines left out."""
    lines, gap = printed.splitlines(), False
    for line in shown.splitlines():
        if line == "...":
            gap = True
            continue
        while gap and lines and not same(line, lines[0]):
            lines.pop(0)
        assert lines, f"not printed: {line}\n{printed}"
        assert same(line, lines[0]), f"{line}\n{lines[0]}\n{printed}"
        lines.pop(0)
        gap = False
    assert gap or not lines, f"not shown: {lines}"


def gallery() -> dict[str, str]:
    """What the gallery shows of each example, by the name of its file."""
    block = re.compile(
        r"^```console\n\$ python examples/(\S+)\n(.*?)^```$", re.M | re.S
    )
    return dict(block.findall(GALLERY.read_text()))

"""What one GPU measured, from docs/gpu."""

import json
import re
from pathlib import Path
from typing import Any

from scripts.tables.rows import DOCS, heads, row

DEVICE = "NVIDIA-H200"
NOTHING = "No GPU has run it yet: there are no figures here."
STEPS = {
    "all_reduce": "`all_reduce`",
    "all_reduce+quantize8": "`all_reduce` in 8 bits",
    "power_sgd": "`power_sgd`",
    "one_bit_adam": "`one_bit_adam`",
    "diloco": "`diloco` in your own loop",
}
BASES = {"QR": "each by QR ms", "reflections, written out": "reflections of a shape ms"}
COPIES = {"with a profile": "orders, with a profile", "without": "orders"}
TEXT = {
    "all_reduce": "`all_reduce`",
    "sparse_loco, 3": "`sparse_loco`",
    "desynced, 100": "`desynced`",
    "diloco, 100": "`diloco`",
    "diloco in 4 bits, 12": "`diloco` in 4 bits, every 12 steps",
    "sparse_loco, 13": "`sparse_loco`",
    "diloco, 400": "`diloco`",
    "diloco in 4 bits, 50": "`diloco` in 4 bits, every 50 steps",
}


def part(name: str) -> dict[str, Any]:
    """The rows of a part of scripts/on_gpu.py."""
    return json.loads((DOCS / "gpu" / f"{name}-{DEVICE}.json").read_text())["rows"]


def steps() -> list[str]:
    """Steps with a relaxation over plain ones, with emulated workers behind them."""
    lines = heads("step of a transformer with 32 M params, over plain `jax.jit`", [""])
    measured = part("transformations")
    lines += [row(shown, [f"{measured[x]['ratio']:.2f}"]) for x, shown in STEPS.items()]
    emulated = {name: each["ratio"] for name, each in part("emulated").items()}
    counts = [int(name.split()[0]) for name in emulated]
    shown = f"{min(counts)} to {max(counts)} emulated workers, over one"
    least, most = min(emulated.values()), max(emulated.values())
    return [*lines, row(shown, [f"{least:.2f} to {most:.2f}"])]


def bases() -> list[str]:
    """Milliseconds of orthonormal bases of all factors, by rank."""
    measured = part("bases")
    lines = heads("", measured)
    for shown, key in BASES.items():
        lines.append(row(shown, [f"{each[key][1]:.3g}" for each in measured.values()]))
    return lines


def copies() -> list[str]:
    """Steps with other orders of copies over those with the best one."""
    lines = heads("", ["random orders", "reversed"])
    for shown, name in COPIES.items():
        measured = part("host_orders")[name]
        drawn = [x for key, x in measured.items() if re.match(r"random \d+ /", key)]
        reverse = measured["reversed / as used"]
        cells = [f"{min(drawn):.2f} to {max(drawn):.2f}", f"{reverse:.2f}"]
        lines.append(row(shown, cells))
    return lines


def text() -> list[str]:
    """Bits per character, and bytes over those of all gradients."""
    measured = part("text")
    whole = measured["all_reduce"]["bytes a step"]
    lines = heads("method", ["bytes", "bits per character"])
    for name, shown in TEXT.items():
        fewer = whole / measured[name]["bytes a step"]
        sent = "1" if fewer == 1 else f"1/{fewer:.0f}"
        lines.append(row(shown, [sent, f"{measured[name]['metric']:.2f}"]))
    return lines


def every_row() -> list[str]:
    """All that was measured."""
    return page(DOCS / "gpu")


def page(folder: Path) -> list[str]:
    """A table for each file that scripts/on_gpu.py has written."""
    lines: list[str] = []
    for path in sorted(folder.glob("*.json")):
        part = json.loads(path.read_text())
        known = part["conditions"]
        what = f"**{known['part']}**: {known['device']}, JAX {known['jax']}"
        what += f", `{known['flags']}`" if "flags" in known else ""
        lines += [what, ""]
        lines += [*table(part["rows"]), ""]
    return lines or [NOTHING]


def table(rows: dict[str, dict[str, Any]]) -> list[str]:
    """Numbers and words of each row; lists stay in the file."""
    plain = (str, int, float)
    keys = {
        k: None for row in rows.values() for k, v in row.items() if type(v) in plain
    }
    lines = heads("", keys)
    for name, each in rows.items():
        cells = (each.get(key, "") for key in keys)
        texts = (f"{x:.4g}" if isinstance(x, float) else str(x) for x in cells)
        lines.append(row(name, texts))
    return lines

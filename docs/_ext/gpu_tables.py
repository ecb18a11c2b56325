"""What a GPU has measured: a table for each file that scripts/on_gpu.py has written."""

import json
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

FOLDER = Path(__file__).parents[1] / "gpu"
NOTHING = "No GPU has run it yet: there are no figures here."


def page(folder: Path) -> list[str]:
    """Lines of the page."""
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
    lines = ["| | " + " | ".join(keys) + " |", "|---" * (len(keys) + 1) + "|"]
    for name, row in rows.items():
        cells = (row.get(key, "") for key in keys)
        texts = (f"{x:.4g}" if isinstance(x, float) else str(x) for x in cells)
        lines.append(f"| {name} | {' | '.join(texts)} |")
    return lines


class GpuTables(SphinxDirective):
    """The tables as a directive."""

    def run(self) -> list[nodes.Node]:
        """Parses them."""
        return self.parse_text_to_nodes("\n".join(page(FOLDER)))


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers it."""
    app.add_directive("gpu-tables", GpuTables)
    return {"parallel_read_safe": True}

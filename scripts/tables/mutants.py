"""How many mutants of each file its tests notice, from scripts/mutants.toml."""

import tomllib
from pathlib import Path

from scripts.tables.rows import heads, row

TABLE = Path(__file__).parents[2] / "scripts" / "mutants.toml"
FIGURES = ["made", "killed", "equivalent", "survived"]


def table() -> list[str]:
    """A line for each file of which a run was seen, and one for all."""
    rows = tomllib.loads(TABLE.read_text())
    seen = {file: row for file, row in rows.items() if "killed" in row}
    lines = heads("file", FIGURES)
    for file, each in sorted(seen.items()):
        name = file.removeprefix("relaxjax/")
        lines.append(row(f"`{name}`", [str(each[key]) for key in FIGURES]))
    total = [str(sum(each[key] for each in seen.values())) for key in FIGURES]
    return [*lines, row(f"all {len(seen)}", total)]

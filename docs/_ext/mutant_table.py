"""How many mutants of each file its tests notice, from scripts/mutants.toml."""

import tomllib
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

TABLE = Path(__file__).parents[2] / "scripts" / "mutants.toml"
HEAD = ["| file | made | killed | equivalent | survived |", "|---|---|---|---|---|"]


def table() -> list[str]:
    """A line for each file of which a run was seen, and one for all."""
    rows = tomllib.loads(TABLE.read_text())
    seen = {file: row for file, row in rows.items() if "killed" in row}
    lines, keys = list(HEAD), ("made", "killed", "equivalent", "survived")
    for file, row in sorted(seen.items()):
        name = file.removeprefix("relaxjax/")
        lines.append(f"| `{name}` | {' | '.join(str(row[key]) for key in keys)} |")
    total = (str(sum(row[key] for row in seen.values())) for key in keys)
    return [*lines, f"| all {len(seen)} | {' | '.join(total)} |"]


class MutantTable(SphinxDirective):
    """The table as a directive."""

    def run(self) -> list[nodes.Node]:
        """Parses it."""
        self.env.note_dependency(str(TABLE))
        return self.parse_text_to_nodes("\n".join(table()))


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers it."""
    app.add_directive("mutant-table", MutantTable)
    return {"parallel_read_safe": True}

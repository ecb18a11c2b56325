"""Tables of the crossing of optax: from its JSON, and from the ways out of refusals."""

import json
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from benchmarks.crossing.instead import WAYS, instead

FILE = Path(__file__).parents[1] / "results" / "crossing.json"
SIGNS = {"equal": "=", "warned": "!", "refused": "x"}
CURES = {
    "remembers params": (
        "The optimizer's state holds a place of the params, and its updates lead back "
        "there after each meeting",
        "`desynced` with the fields that `init` names",
    ),
    "counts calls of update": (
        "The method counts mini-steps, and the optimizer takes fewer",
        "`sync_every` as a multiple of the mini-steps",
    ),
}
"""Warnings: words of the message, the reason, what helps."""


def cells() -> list[dict[str, Any]]:
    return json.loads(FILE.read_text())["cells"]


def columns(found: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["place"] for row in found))


def counts() -> list[str]:
    found, verdicts = cells(), [*SIGNS, "wrong", "broken"]
    lines = [f"| place | {' | '.join(verdicts)} |", "|---" * (len(verdicts) + 1) + "|"]
    for place in columns(found):
        here = [row["verdict"] for row in found if row["place"] == place]
        numbers = " | ".join(str(here.count(verdict)) for verdict in verdicts)
        lines.append(f"| `{place}` | {numbers} |")
    return lines


def verdicts() -> list[str]:
    found = cells()
    places = columns(found)
    by = {(row["name"], row["place"]): row["verdict"] for row in found}
    heads = " | ".join(f"`{place}`" for place in places)
    lines = [f"| transformation | {heads} |", "|---" * (len(places) + 1) + "|"]
    for name in dict.fromkeys(row["name"] for row in found):
        signs = (SIGNS.get(by.get((name, place), ""), "") for place in places)
        function, comma, rest = name.partition(",")
        lines.append(f"| `{function}`{comma}{rest} | {' | '.join(signs)} |")
    return lines


def ways() -> list[str]:
    found = [row for row in cells() if row["verdict"] == "refused"]
    lines = ["| reason | cells | what works instead |", "|---|---|---|"]
    for way in WAYS:
        count = sum(instead(row["words"]) is way for row in found)
        if count:
            lines.append(f"| {way.why} | {count} | {way.line} |")
    return lines


def cures() -> list[str]:
    found = [row["words"] for row in cells() if row["verdict"] == "warned"]
    lines = ["| reason | cells | what helps |", "|---|---|---|"]
    for words, (why, line) in CURES.items():
        count = sum(re.search(words, text) is not None for text in found)
        lines.append(f"| {why} | {count} | {line} |")
    return lines


TABLES = {"counts": counts, "verdicts": verdicts, "ways": ways, "cures": cures}


class CrossingTable(SphinxDirective):
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(FILE))
        lines = TABLES[self.arguments[0]]()
        return self.parse_text_to_nodes("\n".join(lines))


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("crossing-table", CrossingTable)
    return {"parallel_read_safe": True}

"""Tables of the crossing of optax: from its JSON, and from the ways out of refusals."""

import re
from typing import Any

from benchmarks.crossing.instead import WAYS, instead
from scripts.tables.rows import heads, result, row

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
    """A transformation in a place, and what became of it."""
    return result("crossing")["cells"]


def places(found: list[dict[str, Any]]) -> list[str]:
    """Their names, once each."""
    return list(dict.fromkeys(each["place"] for each in found))


def counts() -> list[str]:
    """How many of each verdict there are, by place."""
    found, verdicts = cells(), [*SIGNS, "wrong", "broken"]
    lines = heads("place", verdicts)
    for place in places(found):
        here = [each["verdict"] for each in found if each["place"] == place]
        lines.append(row(f"`{place}`", [str(here.count(x)) for x in verdicts]))
    return lines


def verdicts() -> list[str]:
    """A sign for each transformation in each place."""
    found = cells()
    by = {(each["name"], each["place"]): each["verdict"] for each in found}
    lines = heads("transformation", [f"`{place}`" for place in places(found)])
    for name in dict.fromkeys(each["name"] for each in found):
        signs = [SIGNS.get(by.get((name, place), ""), "") for place in places(found)]
        function, comma, rest = name.partition(",")
        lines.append(row(f"`{function}`{comma}{rest}", signs))
    return lines


def ways() -> list[str]:
    """Reasons of refusals, and what works instead."""
    found = [each for each in cells() if each["verdict"] == "refused"]
    lines = heads("reason", ["cells", "what works instead"])
    for way in WAYS:
        count = sum(instead(each["words"]) is way for each in found)
        if count:
            lines.append(row(way.why, [str(count), way.line]))
    return lines


def cures() -> list[str]:
    """Reasons of warnings, and what helps."""
    found = [each["words"] for each in cells() if each["verdict"] == "warned"]
    lines = heads("reason", ["cells", "what helps"])
    for words, (why, line) in CURES.items():
        count = sum(re.search(words, text) is not None for text in found)
        lines.append(row(why, [str(count), line]))
    return lines

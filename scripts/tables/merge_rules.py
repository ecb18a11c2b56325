"""The table of what merges how, read from the annotations of the states."""

import functools
import importlib
import inspect
import pkgutil

import relaxjax
from relaxjax._core._merge_rules import MergeRule, marks_of
from scripts.tables.rows import heads, row

OUTSIDE = tuple(f"relaxjax.{name}" for name in ("check", "cli", "tasks", "__main__"))


@functools.cache
def states() -> dict[str, dict[str, MergeRule]]:
    """The marked classes of the package, by their names."""
    names = [x.name for x in pkgutil.walk_packages(relaxjax.__path__, "relaxjax.")]
    modules = [
        importlib.import_module(name) for name in names if not name.startswith(OUTSIDE)
    ]
    classes = {
        value
        for module in modules
        for value in vars(module).values()
        if inspect.isclass(value) and value.__module__ == module.__name__
    }
    found = {kind.__name__: marks_of(kind) for kind in classes}
    return {name: found[name] for name in sorted(found) if found[name]}


def table() -> list[str]:
    """The rule of each field."""
    lines = heads("state", ["its fields"])
    for name, marks in states().items():
        fields = ", ".join(f"`{field}` {mark.name}" for field, mark in marks.items())
        lines.append(row(f"`{name}`", [fields]))
    return lines

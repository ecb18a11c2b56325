"""Tries an implementation on the golden vectors.

python -m relaxjax.golden                                     relaxjax itself
python -m relaxjax.golden --implementation module:function    another one
python -m relaxjax.golden --vectors FILE.json --json          other vectors, as JSON

Exit code 0 if nothing differs, 1 if something does or raises, 2 for a usage error.
"""

import argparse
import importlib
import json
import math
import sys
from typing import Any

from relaxjax.golden import Outcome, compare, load


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns the exit code."""
    parser = argparse.ArgumentParser("python -m relaxjax.golden", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    ours = "relaxjax.golden:implementation"
    parser.add_argument("--implementation", metavar="MODULE:FUNCTION", default=ours)
    parser.add_argument("--vectors", metavar="FILE.json")
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    options = parser.parse_args(arguments)
    try:
        outcomes = compare(_loaded(options.implementation), load(options.vectors))
    except (ImportError, OSError, ValueError) as error:
        print(f"relaxjax.golden: {error}", file=sys.stderr)
        return 2
    print(_as_json(outcomes) if options.json else _as_table(outcomes))
    return int(any(row.status in ("differs", "error") for row in outcomes))


def _loaded(name: str) -> Any:
    """The function that MODULE:FUNCTION names; ValueError or ImportError if none is."""
    module, colon, function = name.partition(":")
    try:
        loaded = importlib.import_module(module) if colon else None
    except (Exception, SystemExit) as error:  # whatever the user's module raises
        raise ImportError(
            f"--implementation {name}: {module} cannot be imported: it raised "
            f"{type(error).__name__}: {error}"
        ) from error
    implementation: Any = getattr(loaded, function, None)
    if not callable(implementation):
        raise ValueError(
            f"--implementation {name}: it must be MODULE:FUNCTION, of a module that "
            "Python can import and a function in it"
        )
    return implementation


def _as_json(outcomes: list[Outcome]) -> str:
    rows = [row._asdict() for row in outcomes]
    return json.dumps(
        [row if math.isfinite(row["error"]) else row | {"error": None} for row in rows]
    )


def _as_table(outcomes: list[Outcome]) -> str:
    width = max((len(row.name) for row in outcomes), default=0)
    lines = []
    for row in outcomes:
        error = "" if math.isnan(row.error) else f"{row.error:.1e}"
        line = f"{row.name:{width}}  {row.status:11}  {error:7}  {row.detail}"
        lines.append(line.rstrip())
    counts = [row.status for row in outcomes]
    names = ("pass", "differs", "error", "not covered")
    lines.append(", ".join(f"{name} {counts.count(name)}" for name in names))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

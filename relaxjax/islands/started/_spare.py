"""A process that has imported JAX and waits until an island needs it.

To import takes seconds, which an island that begins again would wait for. A spare has
done it beside the process whose place it may take: JAX, and the installed packages that
the script names at its top. Modules of the script's own are left to the script, and no
device is asked for.

Cost: the memory of the imports for each island, and their seconds twice.
"""

import ast
import os
import runpy
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from relaxjax.islands.one._read_settings import remember_settings


def waiting(command: Sequence[str]) -> list[str]:
    """The command of a process that waits for a line before it runs the script.

    Args:
      command: Python, its flags, a script and the script's arguments.
    """
    script = next(i for i, part in enumerate(command) if i and part[:1] != "-")
    return [*command[:script], "-m", __name__, *command[script:]]


def main() -> None:
    """Waits for a line, and runs the script of the arguments; or for the end of it."""
    remember_settings()
    import_module("relaxjax.islands.one._join")  # and JAX with it
    for name in _installed(Path(sys.argv[1])):
        with suppress(ImportError):
            import_module(name)
    if not sys.stdin.readline():
        return
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    runpy.run_path(sys.argv[0], run_name="__main__")


def _installed(script: Path) -> Iterator[str]:
    """Modules that a script imports first, where they are installed packages."""
    with suppress(OSError, SyntaxError, ValueError):
        for statement in ast.parse(script.read_text()).body:
            named = [alias.name for alias in getattr(statement, "names", ())]
            if isinstance(statement, ast.ImportFrom) and statement.module:
                named = [statement.module] if not statement.level else []
            yield from filter(_is_installed, named)


def _is_installed(name: str) -> bool:
    spec = find_spec(name.partition(".")[0])
    places = sysconfig.get_paths()
    roots = Path(places["purelib"]), Path(places["platlib"])
    origin = Path(spec.origin) if spec and spec.origin else Path("/")
    return any(root in origin.parents for root in roots)


if __name__ == "__main__":
    main()

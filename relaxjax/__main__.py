"""The command line: `relaxjax`, or `python -m relaxjax`."""

import importlib.util
import sys

from relaxjax import hosts

_EXTRA = ("flax", "matplotlib", "rich", "sklearn", "typer")


def main() -> None:
    """Runs the command line, or says which extra it needs."""
    hosts.install()
    if any(importlib.util.find_spec(name) is None for name in _EXTRA):
        need = 'relaxjax needs its command-line extra: pip install "relaxjax[cli]"'
        print(need, file=sys.stderr)
        raise SystemExit(2)
    from relaxjax.cli import main as run

    run()


if __name__ == "__main__":
    main()

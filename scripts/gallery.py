"""Runs examples, and writes what they print into docs/gallery.md.

python scripts/gallery.py                 all of them
python scripts/gallery.py NAME.py ...     these

Needs the environment of scripts/check.py, and several minutes for all.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "gallery.md"
BLOCK = re.compile(r"^```console\n\$ python examples/(\S+)\n(.*?)^```$", re.M | re.S)


def printed(name: str) -> str:
    """What an example prints."""
    env = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(ROOT / "examples" / name)]
    return subprocess.run(command, env=env, check=True, stdout=-1, text=True).stdout


def main(names: list[str]) -> None:
    """Writes the page anew, but for examples that are not named."""

    def block(found: re.Match[str]) -> str:
        name, shown = found.groups()
        shown = printed(name) if not names or name in names else shown
        return f"```console\n$ python examples/{name}\n{shown}```"

    PAGE.write_text(BLOCK.sub(block, PAGE.read_text()))


if __name__ == "__main__":
    main(sys.argv[1:])

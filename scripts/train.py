"""Sets up an environment and trains in it.

python3 scripts/train.py            digits, all_reduce, 8 emulated workers
python3 scripts/train.py --relaxation gossip --workers 4 --task chars

Options are those of `relaxjax train`; with any, none is chosen here. The environment is
.venv, where `scripts/check.py` installs what tests need. Needs nothing but Python 3.11
or newer. Exits with the status of what failed first.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".venv" / ("Scripts" if os.name == "nt" else "bin")
FIRST = ["--relaxation", "all_reduce", "--workers", "8", "--task", "digits"]


def run(*command: str | Path) -> None:
    """Runs a command, or exits with its status."""
    status = subprocess.run([str(part) for part in command]).returncode
    if status:
        sys.exit(status)


def main(options: list[str]) -> None:
    """Makes the environment if there is none."""
    python = HOME / "python"
    if not (HOME / "pip").exists() and not (HOME / "pip.exe").exists():
        run(sys.executable, "-m", "venv", ROOT / ".venv")
    run(python, "-m", "pip", "install", "-q", "-e", f"{ROOT}[cli]")
    run(python, "-m", "relaxjax", "train", *(options or FIRST))


if __name__ == "__main__":
    main(sys.argv[1:])

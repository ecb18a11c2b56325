"""Do the surprises of other packages still hold? Needs a package index; not in CI.

python scripts/findings.py                       every script of findings/, in turn
python scripts/findings.py orbax_nan_is_best     those that are named
python scripts/findings.py --minutes 20          stops after so long; 60 by default

Prints what each script prints, then a table: the finding, the packages that it pins,
whether it holds, has changed or failed, and its minutes. "Failed" is a script that gave
no answer, as without a network or after the last minute. Exit status 1 if any of them
changed or failed.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).resolve().parent.parent / "findings"
MINUTES = 60.0
PIN = re.compile(r"([\w.-]+)==([\w.!+-]+)")


class Row(NamedTuple):
    """What came of one script."""

    name: str
    packages: str
    verdict: str
    minutes: float


def pins(script: Path) -> str:
    """The packages that a script installs, as in `jax 0.12.0.1, optax 0.2.8`."""
    code = [line for line in script.read_text().splitlines() if line[:1] != "#"]
    found = dict(PIN.findall("\n".join(code)))
    return ", ".join(f"{name} {version}" for name, version in found.items())


def output(script: Path, seconds: float) -> tuple[int | None, str]:
    """Exit status, None if it took too long, and what a script printed.

    Its temporary folders lie in one that is removed, whatever becomes of the script.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        process = subprocess.Popen(
            ["sh", str(script)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "TMPDIR": folder},
            start_new_session=True,
        )
        try:
            text, _ = process.communicate(timeout=seconds)
            return process.returncode, text
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            text, _ = process.communicate()
            return None, text


def verdict(status: int | None, text: str) -> str:
    """`holds` and `changed` are said by the script; all else has failed."""
    last = text.splitlines()[-1:] or [""]
    if status == 0 and last == ["holds"]:
        return "holds"
    if status and any(line.startswith("changed") for line in text.splitlines()):
        return "changed"
    return "failed"


def run(script: Path, seconds: float) -> Row:
    """Runs a script, prints its output, and gives its row."""
    print(f"== {script.stem}", flush=True)
    start = time.monotonic()
    status, text = output(script, seconds) if seconds > 0 else (None, "")
    said = verdict(status, text)
    print(text + ("" if status is not None else "no time left\n"), flush=True)
    return Row(script.stem, pins(script), said, (time.monotonic() - start) / 60)


def table(rows: Sequence[Row]) -> str:
    """The rows under their heads, in columns."""
    heads = ("finding", "result", "minutes", "packages")
    cells = [(r.name, r.verdict, f"{r.minutes:.1f}", r.packages) for r in rows]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    lines = []
    for row in (heads, *cells):
        padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def chosen(names: Sequence[str], folder: Path) -> list[Path]:
    """The scripts of these names, or all; SystemExit if one does not exist."""
    scripts = {path.stem: path for path in sorted(folder.glob("*.sh"))}
    unknown = [name for name in names if Path(name).stem not in scripts]
    if unknown or not scripts:
        sys.exit(f"no finding {', '.join(unknown)}; there are: {', '.join(scripts)}")
    return [scripts[Path(name).stem] for name in names] or list(scripts.values())


def main(arguments: Sequence[str] | None = None, folder: Path = FOLDER) -> int:
    """Runs the scripts one after the other; 0 if all of them hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("names", nargs="*", help="findings; all if none is named")
    parser.add_argument("--minutes", type=float, default=MINUTES)
    options = parser.parse_args(arguments)
    end = time.monotonic() + 60 * min(options.minutes, MINUTES)
    scripts = chosen(options.names, folder)
    rows = [run(script, end - time.monotonic()) for script in scripts]
    print(table(rows))
    return int(any(row.verdict != "holds" for row in rows))


if __name__ == "__main__":
    sys.exit(main())

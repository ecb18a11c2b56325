"""What each process says of itself: lines of JSON that survive its `kill -9`.

A line is written by one call of the operating system, so that it is there or it is not.
Times are those of the machine's monotonic clock, which all its processes share.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

FOLDER = "diary"


class Diary:
    """The diary of one process."""

    def __init__(self, folder: Path, name: str):
        """Begins a page: a file of this process alone."""
        path = folder / FOLDER / f"{name}.{os.getpid()}"
        path.parent.mkdir(exist_ok=True)
        self._file = path.open("ab", buffering=0)
        self._said = {"name": name, "pid": os.getpid()}
        self.write("born", born=_born())

    def write(self, what: str, **more: Any) -> None:
        """Adds a line."""
        line = {"what": what, "at": time.monotonic(), **self._said, **more}
        self._file.write(json.dumps(line).encode() + b"\n")


def read(folder: Path) -> list[dict[str, Any]]:
    """The lines of all processes, in order of time."""
    lines = []
    for path in sorted((folder / FOLDER).glob("*")):
        for line in path.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                lines.append(json.loads(line))
    return sorted(lines, key=lambda line: line["at"])


def _born() -> float:
    """When the system has started this process."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return int(fields[19]) / os.sysconf("SC_CLK_TCK")

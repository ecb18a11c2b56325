"""A part's results, row by row: written at once, and not measured twice."""

import json
import platform
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

Row = dict[str, Any]


def conditions() -> Row:
    """The device, and the versions of what drives it."""
    device = jax.devices()[0]
    return {
        "device": device.device_kind,
        "platform": device.platform,
        "driver": " ".join(device.client.platform_version.split()),
        "python": platform.python_version(),
        "jax": version("jax"),
        "relaxjax": version("relaxjax"),
    }


class Record:
    """The rows of a part, in one JSON file.

    Attributes:
      rows: what has been measured, by name.
      tiny: whether sizes are those of a test.
    """

    def __init__(self, path: Path, minutes: float, *, tiny: bool):
        self._path, self._end = path, time.monotonic() + 60 * minutes
        self.rows: dict[str, Row] = {}
        self.tiny = tiny
        self._conditions = {**conditions(), "tiny": tiny}
        if path.exists():
            before = json.loads(path.read_text())
            if before["conditions"] == self._conditions:  # else of another machine
                self.rows = before["rows"]

    def some(self, table: Mapping[str, Any]) -> dict[str, Any]:
        """The whole table, or the few of a test."""
        return dict(list(table.items())[1:3] if self.tiny else table)

    def measure(self, name: str, row: Callable[[], Row]) -> None:
        """Adds a row, unless it is there or the part's time is over."""
        if name in self.rows:
            print(f"  {name}: is there", flush=True)
            return
        if time.monotonic() > self._end:
            print(f"  {name}: left for the next run, time is over", flush=True)
            return
        start = time.perf_counter()
        found = {**row(), "seconds of all": round(time.perf_counter() - start, 3)}
        self.rows[name] = found
        print(f"  {name}: {json.dumps(shown(found))}", flush=True)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"conditions": self._conditions, "rows": self.rows}, indent=1)
        self._path.write_text(text + "\n")


def shown(row: Row) -> Row:
    """What fits a line: numbers and words."""
    return {k: v for k, v in row.items() if isinstance(v, int | float | str)}

"""A part's results, row by row: written at once, and not measured twice."""

import json
import os
import platform
import re
import time
import traceback
from collections.abc import Callable, Collection, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

import relaxjax

Row = dict[str, Any]


def conditions() -> Row:
    """The device, and the versions of what drives it."""
    device = jax.devices()[0]
    flags = os.environ.get("XLA_FLAGS", "")
    return {
        **({"flags": flags} if flags else {}),
        "device": device.device_kind,
        "platform": device.platform,
        "driver": " ".join(device.client.platform_version.split()),
        "python": platform.python_version(),
        "jax": version("jax"),
        "relaxjax": relaxjax.__version__,
    }


class Record:
    """The rows of a part, in one JSON file for each device: FOLDER/PART-DEVICE.json.

    Of another version of JAX or relaxjax they are measured anew; with XLA_FLAGS they
    have a file of their own.

    Attributes:
      rows: what has been measured, by name.
      failed: names of rows that raised; they are tried again in the next run.
      tiny: whether sizes are those of a test.
    """

    def __init__(
        self,
        folder: Path,
        part: str,
        minutes: float,
        *,
        tiny: bool,
        only: Collection[str] | None = None,
    ):
        self._conditions = {**conditions(), "part": part, "tiny": tiny}
        where = f"{self._conditions['device']} {self._conditions.get('flags', '')}"
        name = re.sub(r"\W+", "-", f"{part} {where}").strip("-")
        self._path = folder / f"{name}.json"
        self._end = time.monotonic() + 60 * minutes
        self.rows: dict[str, Row] = {}
        self.failed: list[str] = []
        self.tiny = tiny
        self._only = only
        if self._path.exists():
            before = json.loads(self._path.read_text())
            if before["conditions"] == self._conditions:
                self.rows = before["rows"]

    def some(self, table: Mapping[str, Any]) -> dict[str, Any]:
        """The whole table, or the few of a test."""
        return dict(list(table.items())[1:3] if self.tiny else table)

    def measure(self, name: str, row: Callable[[], Row]) -> None:
        """Adds a row, unless it is there, not asked for, or the part's time is over.

        A row that raises is named, and the others are measured nevertheless.
        """
        if self._only and name not in self._only:
            return
        if name in self.rows:
            print(f"  {name}: is there", flush=True)
            return
        if time.monotonic() > self._end:
            print(f"  {name}: left for the next run, time is over", flush=True)
            return
        start = time.perf_counter()
        try:
            found = row()
        except Exception:
            print(f"  {name}: failed", traceback.format_exc(), flush=True)
            self.failed.append(name)
            return
        found["seconds of all"] = round(time.perf_counter() - start, 3)
        self.rows[name] = found
        print(f"  {name}: {json.dumps(shown(found))}", flush=True)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"conditions": self._conditions, "rows": self.rows}, indent=1)
        self._path.write_text(text + "\n")


def shown(row: Row) -> Row:
    """What fits a line: numbers and words."""
    return {k: v for k, v in row.items() if isinstance(v, int | float | str)}

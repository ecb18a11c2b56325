"""What a study found: its records, its tables, its report."""

import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from relaxjax._core.foreign._folders import local_path
from relaxjax._core.foreign._html import paragraphs, table
from relaxjax._core.foreign._json import LARGE, read_json
from relaxjax.compare.kept import _records
from relaxjax.compare.kept._schema import wrong_study
from relaxjax.compare.kept._summary import summary
from relaxjax.compare.page import _report, _tables, _words

STUDY = "study.json"


class Results:
    """The runs of a study that are there, whether all of them or not.

    Args:
      folder: the folder of the study.

    Raises:
      ValueError: there is no study.
    """

    def __init__(self, folder: str | Path):
        self.folder = local_path("Results", "folder", folder)
        path = self.folder / STUDY
        try:
            self.study: dict[str, Any] = read_json(path, LARGE)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"{path} cannot be read as a study ({error}): give the folder that was "
                "the --out of `relaxjax compare`"
            ) from error
        if says := wrong_study(self.study):
            raise ValueError(
                f"{path} is not as this version of relaxjax writes it ({says}): run "
                "the command that made it once more, in another folder if need be"
            )
        methods, others = self.study["methods"], self.study.get("left_out", ())
        self._records = [
            r
            for r in _records.read(self.folder)
            if r["method"] in methods and r["key"] not in others
        ]

    def records(self) -> list[dict[str, Any]]:
        """Plain dictionaries, one for each run."""
        return [dict(record) for record in self._records]

    def table(self) -> str:
        """The table of all relaxations, as text."""
        return _tables.text(self.study, self._records)

    def conclusion(self) -> list[str]:
        """The verdicts of the study, in a few sentences."""
        return _words.conclusion(summary(self.study, self._records))

    def _repr_html_(self) -> str:
        """The verdicts and the table of quality for a notebook."""
        found = summary(self.study, self._records)
        columns = _tables.quality(found)
        rows = [[column.cell(row) for column in columns] for row in found.rows]
        shown = table([column.title for column in columns], rows)
        return paragraphs(_words.conclusion(found)) + shown

    def write(self) -> None:
        """Writes report.html, report.md, table.tex and `figures/` into the folder."""
        _report.write(self.folder, self.study, self._records)


def conditions() -> dict[str, Any]:
    """The machine and the versions that figures were made with."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":")[1].strip() for line in lines if "model name" in line]
    return {
        "machine": names[0] if names else platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "jax": version("jax"),
        "numpy": version("numpy"),
        "optax": version("optax"),
    }

"""`study.json`: what was asked of a study, for its report and for those who go on.

More seeds, methods and networks may be added to a study that is there; another task,
other steps, workers or rows, or another baseline make another study.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from relaxjax._core.foreign._folders import write_whole
from relaxjax._core.foreign._json import LARGE, number, read_json
from relaxjax._core.foreign._types import Each, wrong
from relaxjax.compare.page._results import STUDY
from relaxjax.compare.study._asked import Settings
from relaxjax.compare.study._methods import Method
from relaxjax.compare.study._one_run import Shape

_USED = {"asked": Each(object), "compute_seconds": float, "command": str}


def write_study(folder: Path, said: Mapping[str, Any]) -> None:
    """Writes what a study says of itself."""
    write_whole(folder / STUDY, json.dumps(said, indent=1, default=number) + "\n")


def study_there(folder: Path, asked: Mapping[str, Any]) -> dict[str, Any]:
    """What stands in the folder; nothing in a new one.

    Raises:
      ValueError: it is another study, or no study.
    """
    path = folder / STUDY
    if not path.exists():
        return {}
    found = _read(path)
    before = found.get("asked", {})
    if found and before != asked:
        odd = [k for k in asked if before.get(k) != asked[k]]
        said = ", ".join(f"{k}={before.get(k)!r} there, {asked[k]!r} here" for k in odd)
        hint = "Give the same, or another folder"
        if "program" in odd and {*odd} <= {"program", "baseline"}:
            hint = (
                "What the task computes is traced otherwise, by another version of "
                "relaxjax or JAX, or in another task: go on with the version that "
                f"began it ({found.get('version')}), or take another folder; "
                "compare.Results reads what is there"
            )
        raise ValueError(f"{folder} holds a study of other settings: {said}. {hint}")
    return found


def _read(path: Path) -> dict[str, Any]:
    """What another start has written, as far as it is used here."""
    try:
        found = read_json(path, LARGE)
        says = wrong({k: v for k, v in _USED.items() if k in found}, found)
    except (OSError, TypeError, ValueError) as error:
        found, says = {}, str(error)
    if says:
        raise ValueError(
            f"{path} cannot be read as a study ({says}): remove it, and it is written "
            "again, or name another folder"
        )
    return found


def described(settings: Settings, shape: Shape) -> dict[str, Any]:
    """The settings, as they are written."""
    return {
        "seeds": list(range(settings.seeds)),
        "tune": settings.tune,
        "grid": {k: list(v) for k, v in settings.grid.items()},
        **shape.sizes,
        "target": settings.target,
    }


def runs_of_all(methods: Sequence[Method], settings: Settings) -> int:
    """Runs of all methods, if all are done."""
    tuned = settings.tune * math.prod(map(len, settings.grid.values()))
    each = settings.seeds + (tuned + 1 if tuned > 1 else 0)
    alone = sum(not method.usual for method in methods)
    return each * (len(methods) - alone) + settings.seeds * alone

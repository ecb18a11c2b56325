"""`study.json`: what was asked of a study, for its report and for those who go on.

More seeds, methods and networks may be added to a study that is there; another task,
other steps, workers or rows, or another baseline make another study.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from relaxjax.compare._asked import Settings
from relaxjax.compare._methods import Method
from relaxjax.compare._one_run import Shape
from relaxjax.compare._results import STUDY


def study_there(folder: Path, asked: Mapping[str, Any]) -> dict[str, Any]:
    """What stands in the folder; nothing in a new one.

    Raises:
      ValueError: it is another study.
    """
    path = folder / STUDY
    if not path.exists():
        return {}
    found = json.loads(path.read_text())
    before = found.get("asked", {})
    if found and before != asked:
        odd = [k for k in asked if before.get(k) != asked[k]]
        said = ", ".join(f"{k}={before.get(k)!r} there, {asked[k]!r} here" for k in odd)
        raise ValueError(
            f"{folder} holds a study of other settings: {said}. Give the same, or "
            "another folder"
        )
    return found


def described(settings: Settings, shape: Shape) -> dict[str, Any]:
    """The settings, as they are written."""
    return {
        "seeds": list(range(settings.seeds)),
        "tune": settings.tune,
        "grid": {k: list(v) for k, v in settings.grid.items()},
        "workers": shape.workers,
        "steps": shape.steps,
        "batch_size": shape.batch_size,
        "target": settings.target,
    }


def runs_of_all(methods: Sequence[Method], settings: Settings) -> int:
    """Runs of all methods, if all are done."""
    tuned = settings.tune * math.prod(map(len, settings.grid.values()))
    each = settings.seeds + (tuned + 1 if tuned > 1 else 0)
    alone = sum(not method.usual for method in methods)
    return each * (len(methods) - alone) + settings.seeds * alone

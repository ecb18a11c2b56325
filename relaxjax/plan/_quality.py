"""How well models train with each relaxation: measured on reference tasks, or unknown.

    exact         the same update as a plain all-reduce, to rounding
    equal         within 1 % of it, relative, on every reference task
    close         within 3 %
    lossy         worse than that on some task
    unmeasured    not every reference task was run

`python -m benchmarks evidence` measures: digits (accuracy) and chars (bits per
character), 8 workers, each relaxation with the steps, batches and learning rate of the
all-reduce beside it. With another model or rate it may fare better, or worse.
"""

import functools
import json
import re
from importlib import resources
from typing import Any, NamedTuple

from relaxjax.gradients import ALGORITHMS

CLASSES = ("exact", "equal", "close", "lossy", "unmeasured")
"""Best first."""

_EXACT = {"all_reduce", "parameter_server", "fsdp", "fsdp+reshard"}
_EXACT |= {f"all_reduce@{k}" for k in ALGORITHMS}
_EQUAL, _CLOSE, _DIVERGED = 0.01, 0.03, 1e3
TASKS = ("digits", "chars")


class Quality(NamedTuple):
    """What is known of a relaxation.

    Attributes:
      name: one of `CLASSES`.
      evidence: what was measured, for people.
    """

    name: str
    evidence: str

    @property
    def rank(self) -> int:
        """Position in `CLASSES`."""
        return CLASSES.index(self.name)


@functools.cache
def measurements() -> dict[str, Any]:
    """By label and task, how much worse, as `python -m benchmarks evidence` found."""
    text = resources.files("relaxjax.plan").joinpath("evidence.json").read_text()
    return json.loads(text)


def bare(label: str) -> str:
    """The label under which evidence is kept: a coded all-reduce without its algorithm.

    An algorithm that sends the same payloads another way is not another method; a
    topology is.

    Args:
      label: name and options of a relaxation.

    Example:
      >>> from relaxjax.plan._quality import bare
      >>> bare("all_reduce+sign+ef14@two_shot plain=0.5")
      'all_reduce+sign+ef14 plain=0.5'
    """
    return re.sub(r"@\S+", "", label) if label.startswith("all_reduce+") else label


def quality_of(label: str) -> Quality:
    """The class of a relaxation.

    Args:
      label: its name and options, such as `all_reduce+quantize8@two_shot`.

    Example:
      >>> from relaxjax.plan._quality import quality_of
      >>> quality_of("all_reduce@ring").name
      'exact'
    """
    if label in _EXACT:
        return Quality("exact", "the same update, to rounding")
    known = measurements()["rows"].get(bare(label), {})
    each = [_describe(task, **known[task]) for task in TASKS if task in known]
    evidence = ", ".join(each)
    worst = max((known[task]["worse"] for task in known), default=0.0)
    if worst > _CLOSE:
        return Quality("lossy", evidence)
    if len(each) < len(TASKS):
        return Quality("unmeasured", evidence or "not run on a reference task")
    return Quality("equal" if worst <= _EQUAL else "close", evidence)


def _describe(task: str, worse: float, seeds: int) -> str:
    if worse > _DIVERGED:
        return f"{task} diverged"
    return f"{task} {100 * worse:+.2g} % ({seeds} seed{'s' * (seeds > 1)})"

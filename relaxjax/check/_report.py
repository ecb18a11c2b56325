"""All that is found of a file, as plain data for JSON, a table, a plot and a page."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from relaxjax.check._bytes import bytes_of
from relaxjax.check._codec_time import codec_time, conditions
from relaxjax.check._compressor import DRAWS, compressor_laws
from relaxjax.check._conservation import feedback_laws
from relaxjax.check._quality import WORKERS, place, runs_of
from relaxjax.check._relaxation import relaxation_laws
from relaxjax.check._samples import SIZES
from relaxjax.check._subjects import Subject
from relaxjax.check._topology import topology_laws
from relaxjax.check._verdict import Verdict, strict_json
from relaxjax.tasks import TASKS
from relaxjax.workers import Emulation


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How thorough a check is; the default takes a minute or two on two cores.

    Attributes:
      draws: number of draws of a random compressor, for each input.
      sizes: sizes of the inputs.
      codec_mb: MiB of the array that is timed.
      rounds: number of rounds of timing.
      steps: number of training steps; 0 trains nothing.
    """

    draws: int = DRAWS
    sizes: Sequence[int] = SIZES
    codec_mb: float = 16.0
    rounds: int = 10
    steps: int = 300


def report_of(
    name: str,
    subjects: Sequence[Subject],
    mesh: Mesh | Emulation,
    effort: Effort,
    tell: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Checks the subjects of a file, on a few devices or emulated workers.

    Returns:
      file, holds, conditions, seconds, `subjects` (name, kind, laws, bytes, codec) and
      `quality` (the rows of the plot); numbers that are not finite are None.
    """
    began = time.perf_counter()
    checked = [_checked(subject, mesh, effort, tell) for subject in subjects]
    quality = []
    task = TASKS["digits"](0)
    for label, owner, make in runs_of(subjects, task, effort.steps):
        if effort.steps:
            tell(f"{label}: {effort.steps} steps of {task.name}")
            quality.append(place(label, owner, make, task, effort.steps))
    failed = any("error" in row for row in quality)
    held = all(law["holds"] is not False for s in checked for law in s["laws"])
    report = {
        "file": name,
        "holds": held and not failed,
        "conditions": conditions(
            task=task.name,
            metric=task.metric_name,
            steps=effort.steps,
            seed=0,
            workers=WORKERS,
            draws=effort.draws,
            codec_mb=effort.codec_mb,
        ),
        "subjects": checked,
        "quality": quality,
        "seconds": time.perf_counter() - began,
    }
    return strict_json(report)


def _checked(
    subject: Subject,
    mesh: Mesh | Emulation,
    effort: Effort,
    tell: Callable[[str], None],
) -> dict[str, Any]:
    tell(f"{subject.name}: laws and bytes")
    rows, agreed = bytes_of(subject, mesh)
    laws = (*_laws(subject, mesh, effort), agreed)
    codec = None
    if subject.kind == "compressor" and all(law.holds is not False for law in laws):
        tell(f"{subject.name}: codec time")
        size = int(effort.codec_mb * 2**20) // 4
        x = jnp.asarray(np.random.default_rng(0).normal(size=size), jnp.float32)
        codec = codec_time(subject.name, subject.compressor(), x, effort.rounds)
    return {
        "name": subject.name,
        "kind": subject.kind,
        "laws": [_law(law) for law in laws],
        "bytes": [row._asdict() for row in rows],
        "codec": codec,
    }


def _laws(
    subject: Subject, mesh: Mesh | Emulation, effort: Effort
) -> tuple[Verdict, ...]:
    if subject.kind == "topology":
        return topology_laws(subject.graph, claims=subject.claims)
    if subject.kind == "relaxation":
        return relaxation_laws(subject.make, claims=subject.claims, mesh=mesh)
    compressor = subject.compressor()
    bare = compressor_laws(compressor, draws=effort.draws, sizes=effort.sizes)
    return (*bare, *feedback_laws(compressor))


def _law(law: Verdict) -> dict[str, Any]:
    row, case = law._asdict(), law.counterexample
    if case is not None:
        text = {"where": dict(case.where), "text": str(case)}
        row["counterexample"] = {**case._asdict(), **text}
    return row

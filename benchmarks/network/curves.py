"""Loss by step of every method, from the same start over the same batches.

No link's rate changes what is computed, so that this is measured once, over loopback,
and may share the machine with others. Held-out loss is the mean over the processes,
each with its own model on its own windows: where models differ, none is averaged.
"""

import itertools
import json
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.network.methods import RATE, Method
from benchmarks.network.problem import Shape, problem, task
from benchmarks.network.worker_processes import WorkerProcesses
from relaxjax.hosts import Loopback

WINDOWS = 64
_POINTS = 15  # of a curve
Curve = list[list[float]]
"""Points [step, mean training loss since the last one, held-out loss]."""


def curves(
    methods: Sequence[Method], shape: Shape, *, steps: int, path: Path
) -> dict[str, Curve]:
    """Trains with each method that the file does not have yet.

    Args:
      methods: the methods; those without communication are left out.
      shape: model and hosts.
      steps: number of steps.
      path: JSON that is added to; a file of other settings is begun anew.

    Returns:
      Curves by label.
    """
    every = max(1, steps // _POINTS)
    settings = {"steps": steps, "every": every, **shape._asdict(), "rate": RATE}
    saved = json.loads(path.read_text()) if path.exists() else {}
    by_label = saved["curves"] if saved.get("settings") == settings else {}
    missing = [m for m in methods if not m.alone and m.label not in by_label]
    for system in dict.fromkeys(m.system for m in missing):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "problem.npz"
            start = task(shape.width, shape.layers)
            drawn = problem(start, processes=shape.hosts, steps=steps, windows=WINDOWS)
            drawn.save(file)
            places = Loopback().open([str(i) for i in range(shape.hosts)])
            with WorkerProcesses(system, list(places.values()), file) as crew:
                for method in (m for m in missing if m.system == system):
                    by_label[method.label] = _curve(crew, method, steps, every)
                    print(method.label, by_label[method.label][-1], flush=True)
                    text = {"settings": settings, "curves": by_label}
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(json.dumps(text, indent=1))
    return by_label


def _curve(crew: WorkerProcesses, method: Method, steps: int, every: int) -> Curve:
    crew.begin(method.label, method.plain(steps=steps))
    start = crew.loss(method.label)
    curve = [[0.0, start, start]]
    for done in range(every, steps + 1, every):
        losses = crew.steps(method.label, every).losses
        training = sum(losses) / every
        curve.append([float(done), training, crew.loss(method.label)])
    crew.end(method.label)
    return curve


def steps_to(curve: Sequence[Sequence[float]], loss: float) -> float:
    """Steps until held-out loss is as low, between measurements on a straight line.

    They are infinite where the loss never is as low.
    """
    for (x, _, above), (y, _, below) in itertools.pairwise(curve):
        if below <= loss:
            share = (above - loss) / (above - below) if above > loss else 0.0
            return x + share * (y - x)
    return math.inf

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

from benchmarks.network.methods import Method
from benchmarks.network.problem import problem, task
from benchmarks.network.worker_processes import Crew
from relaxjax.hosts import Loopback

HOSTS = 4
RATE = 1e-3
WINDOWS = 64
_POINTS = 15  # of a curve
Curve = list[list[float]]
"""Of [step, mean training loss since the last one, held-out loss]."""


def curves(
    methods: Sequence[Method],
    *,
    steps: int,
    path: Path,
    width: int,
    layers: int,
    hosts: int = HOSTS,
    rate: float = RATE,
) -> dict[str, Curve]:
    """Trains with each method that the file does not have yet.

    Args:
      methods: which; those without communication are left out.
      steps: of each.
      path: JSON that is added to; one of other settings is begun anew.
      width: of the model.
      layers: of the model.
      hosts: processes.
      rate: of Adam.

    Returns:
      Curves by label.
    """
    every = max(1, steps // _POINTS)
    told = {"steps": steps, "every": every, "width": width, "layers": layers}
    told |= {"hosts": hosts, "rate": rate}
    known = json.loads(path.read_text()) if path.exists() else {}
    found = known["curves"] if known.get("settings") == told else {}
    missing = [m for m in methods if not m.alone and m.label not in found]
    for system in dict.fromkeys(m.system for m in missing):
        own = [m for m in missing if m.system == system]
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "problem.npz"
            drawn = task(width, layers)
            problem(drawn, processes=hosts, steps=steps, windows=WINDOWS).save(file)
            places = Loopback().open([str(i) for i in range(hosts)])
            crew = Crew(system, list(places.values()), file)
            try:
                for method in own:
                    found[method.label] = _curve(crew, method, steps, every, rate)
                    print(method.label, found[method.label][-1], flush=True)
                    text = json.dumps({"settings": told, "curves": found}, indent=1)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(text)
            finally:
                crew.close()
    return found


def _curve(crew: Crew, method: Method, steps: int, every: int, rate: float) -> Curve:
    crew.begin(method.label, method.plain(rate=rate, steps=steps))
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

    Args:
      curve: of one method.
      loss: which.

    Returns:
      Steps; infinite if it never is.
    """
    for (x, _, above), (y, _, below) in itertools.pairwise(curve):
        if below <= loss:
            share = (above - loss) / (above - below) if above > loss else 0.0
            return x + share * (y - x)
    return math.inf

"""What it costs to count bytes: `wire_bytes` traces one update and runs nothing.

A decoder of 12 layers (197 leaves, figure 3), JAX's caches cleared before each count.
The yardstick, in the same run, is a trace of the gradient itself.
"""

from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from benchmarks import models as _zoo
from benchmarks.measure import interleaved, quartiles
from benchmarks.report import conditions, plot, save, show
from relaxjax.gradients._all_reduce import all_reduce
from relaxjax.gradients._exact_mean import ALGORITHMS
from relaxjax.programs._wire_bytes import wire_bytes

WORKERS = 8
TARGET = 0.5  # seconds
ONE_AXIS = ("psum", *(name for name in ALGORITHMS if name != "hierarchical"))


def count_bytes(
    *, rounds: int = 9, layers: int = 12, out: str = "runs/bench"
) -> dict[str, Any]:
    """Times `wire_bytes` of `all_reduce` with each algorithm.

    Args:
      rounds: interleaved.
      layers: of the decoder.
      out: folder for JSON and plot.

    Returns:
      What was measured, as saved.
    """
    model = _zoo.transformer(_zoo.Transformer(layers))
    mesh = Mesh(np.asarray(jax.devices()[:WORKERS]), ("data",))
    sent: dict[str, int] = {}

    def count(algorithm: str) -> None:
        jax.clear_caches()
        tx = all_reduce("data", algorithm=algorithm)
        sent[algorithm] = wire_bytes(tx, model.params, mesh)

    def trace_gradient() -> None:
        jax.clear_caches()
        jax.make_jaxpr(jax.grad(model.loss))(model.params, *model.args)

    runs: dict[str, Any] = {a: lambda a=a: count(a) for a in ONE_AXIS}
    seconds = interleaved({"gradient": trace_gradient, **runs}, rounds)
    result = {
        "conditions": conditions(
            workers=WORKERS,
            layers=layers,
            leaves=len(jax.tree.leaves(model.params)),
            rounds=rounds,
        ),
        "seconds": seconds,
        "bytes": sent,
        "target": TARGET,
    }
    _report(result, out)
    return result


def _report(result: dict[str, Any], out: str) -> None:
    print(result["conditions"])
    found = {name: quartiles(s) for name, s in result["seconds"].items()}
    sent = result["bytes"]
    rows = [(name, *times, sent.get(name, "")) for name, times in found.items()]
    columns = ("traced", "lower s", "median s", "upper s", "bytes")
    show("Counting bytes", columns, rows)
    print(f"target: median <= {result['target']} s")
    path = save(result, out, "bytes")
    names = [name for name in found if name in sent]
    lines = {
        "wire_bytes": (names, [found[name][1] for name in names]),
        "trace of the gradient": (names, [found["gradient"][1]] * len(names)),
    }
    plot(path, "Counting bytes", ("algorithm", "seconds"), lines)

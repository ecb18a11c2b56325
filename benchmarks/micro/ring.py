"""How the ring's compile time grows with its devices, and the memory that it takes.

Compile time: one bucket, traced, lowered and compiled for 8, 16 and 32 devices
(figure 3). Memory: temporary bytes of a fused ring all-reduce, from the compiler's own
analysis, in units of its bucket; the gradient and the result are not counted.
"""

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from benchmarks.measure import quartiles
from benchmarks.report import conditions, plot, save, show
from relaxjax.gradients._all_reduce import all_reduce

DEVICES = (8, 16, 32)
LEAVES = 16  # of one mebibyte each
MEBIBYTES = (1, 2, 4, 8)


def ring(*, repeats: int = 9, out: str = "runs/bench") -> dict[str, Any]:
    """Measures compile time and temporary memory of the ring.

    Args:
      repeats: compilations for each number of devices, interleaved.
      out: folder for JSON and plot.

    Returns:
      What was measured, as saved.
    """
    seconds: dict[int, list[float]] = {n: [] for n in DEVICES}
    for turn in range(repeats + 1):
        for n in DEVICES:
            elapsed, _ = _compile(n, {"g": (4096,)}, 8 * 2**20)
            if turn:  # the first of each warms up
                seconds[n].append(elapsed)
    leaves = {f"leaf{i}": (1024, 256) for i in range(LEAVES)}
    buckets = {
        size: _compile(8, leaves, size * 2**20)[1] / (size * 2**20)
        for size in MEBIBYTES
    }
    result = {
        "conditions": conditions(repeats=repeats, leaves=LEAVES),
        "compile_seconds": {str(n): s for n, s in seconds.items()},
        "temporary_buckets": {str(size): ratio for size, ratio in buckets.items()},
        "target": "compile time at most linear in devices; at most 2 buckets",
    }
    _report(result, out)
    return result


def _report(result: dict[str, Any], out: str) -> None:
    print(result["conditions"])
    medians = {int(n): quartiles(s)[1] for n, s in result["compile_seconds"].items()}
    first = min(medians)
    rows = [
        (
            n,
            *(1e3 * q for q in quartiles(result["compile_seconds"][str(n)])),
            f"{x:.2f}",
        )
        for n, x in ((n, m / medians[first] * first / n) for n, m in medians.items())
    ]
    columns = ("devices", "lower ms", "median ms", "upper ms", "of linear growth")
    show("Trace, lower and compile one ring", columns, rows)
    rows = [(size, ratio) for size, ratio in result["temporary_buckets"].items()]
    show("Temporary memory", ("bucket MiB", "buckets"), rows)
    path = save(result, out, "ring")
    line = (list(medians), [1e3 * m for m in medians.values()])
    plot(path, "Compile time of a ring", ("devices", "milliseconds"), {"ring": line})


def _compile(n: int, shapes: dict[str, Any], bucket_bytes: int) -> tuple[float, int]:
    """Seconds to compile, and bytes of temporary memory per device."""
    tx = all_reduce("data", algorithm="ring", bucket_bytes=bucket_bytes)
    mesh = Mesh(np.asarray(jax.devices()[:n]), ("data",))
    sharding = NamedSharding(mesh, P("data"))

    def local(grads):
        grads = jax.tree.map(lambda g: g[0], grads)
        return jax.tree.map(lambda g: g[None], tx.update(grads, tx.init(grads))[0])

    mapped = jax.shard_map(
        local, mesh=mesh, in_specs=P("data"), out_specs=P("data"), check_vma=False
    )
    grads = {
        name: jax.ShapeDtypeStruct((n, *shape), jnp.float32, sharding=sharding)
        for name, shape in shapes.items()
    }
    start = time.perf_counter()
    compiled = jax.jit(mapped).lower(grads).compile()
    elapsed = time.perf_counter() - start
    memory: Any = compiled.memory_analysis()
    return elapsed, memory.temp_size_in_bytes

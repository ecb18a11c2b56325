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

from benchmarks.measure import milliseconds
from benchmarks.report import Plot, Result, Rounds, Run, Table, benchmark
from relaxjax import all_reduce

DEVICES = (8, 16, 32)
LEAVES = 16  # of one mebibyte each
MEBIBYTES = (1, 2, 4, 8)


@benchmark("ring", devices=max(DEVICES))
def ring(run: Run, rounds: Rounds = 9) -> Result:
    """Compile time of the ring at 8, 16 and 32 devices, and its temporary memory."""
    seconds: dict[int, list[float]] = {n: [] for n in DEVICES}
    for turn in range(rounds + 1):
        for n in DEVICES:
            elapsed, _ = _compile(n, {"g": (4096,)}, 8 * 2**20)
            if turn:  # the first of each warms up
                seconds[n].append(elapsed)
    leaves = {f"leaf{i}": (1024, 256) for i in range(LEAVES)}
    buckets = {
        str(size): _compile(8, leaves, size * 2**20)[1] / (size * 2**20)
        for size in MEBIBYTES
    }
    times = {n: milliseconds(series) for n, series in seconds.items()}
    one = times[DEVICES[0]][1] / DEVICES[0]
    columns = ("devices", "lower ms", "median ms", "upper ms", "of linear growth")
    cells = [(n, *times[n], times[n][1] / (n * one)) for n in DEVICES]
    lines = {"ring": (DEVICES, [series[1] for series in times.values()])}
    title = "Compile time of a ring"
    return run.finish(
        {
            "conditions": run.conditions(leaves=LEAVES),
            "compile_seconds": {str(n): s for n, s in seconds.items()},
            "temporary_buckets": buckets,
            "target": "compile time at most linear in devices; at most 2 buckets",
        },
        tables=[
            Table("Trace, lower and compile one ring", columns, cells),
            Table("Temporary memory", ("bucket MiB", "buckets"), [*buckets.items()]),
        ],
        plots=[Plot(title, ("devices", "milliseconds"), lines)],
    )


def _compile(n: int, shapes: dict[str, Any], bucket_bytes: int) -> tuple[float, int]:
    """Seconds to compile, and bytes of temporary memory per device."""
    tx: Any = all_reduce("data", algorithm="ring", bucket_bytes=bucket_bytes)
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

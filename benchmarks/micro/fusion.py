"""What fusing the tensors of a gradient is worth (figure 2), and the bucket size.

The gradient of a ResNet-50 (He et al. 2016) is 161 tensors, most of them tiny. A ring
over each of them pays 2 (n - 1) latencies 161 times; in buckets, a few times. Horovod
(Sergeev and Del Balso 2018) reports up to 65 % from this fusion, over TCP.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from benchmarks.measure import interleaved, milliseconds, ratio, text_of
from benchmarks.report import Plot, Result, Rounds, Run, Table, Workers, benchmark
from relaxjax import all_reduce
from relaxjax.collectives import ring_all_reduce

MEBIBYTES = (1, 2, 4, 8, 16, 25, 64)
ALONE = "one message per tensor"
TARGET = 1.65


@benchmark("fusion", devices="workers")
def fusion(run: Run, workers: Workers = 8, rounds: Rounds = 20) -> Result:
    """A ring over the 161 tensors of a ResNet-50 gradient, in buckets or one by one."""
    mesh = Mesh(np.asarray(jax.devices()[:workers]), ("data",))
    sharding = NamedSharding(mesh, P("data"))
    grads = {
        name: jax.device_put(np.ones((workers, *shape), np.float32), sharding)
        for name, shape in resnet50_shapes().items()
    }
    programs = {ALONE: _per_tensor(workers), "psum": _reducer(algorithm="psum")}
    for size in MEBIBYTES:
        reducer = _reducer(algorithm="ring", bucket_bytes=size * 2**20)
        programs[f"{size} MiB buckets"] = reducer
    runs = {name: partial(_mapped(p, mesh), grads) for name, p in programs.items()}
    seconds = interleaved(runs, rounds)
    speedup = {k: ratio(seconds[ALONE], s)._asdict() for k, s in seconds.items()}
    faster = f"times faster than {ALONE}"
    columns = ("program", "lower ms", "median ms", "upper ms", faster)
    cells = [
        (name, *milliseconds(times), text_of(speedup[name]))
        for name, times in seconds.items()
    ]
    curve = [speedup[f"{size} MiB buckets"]["median"] for size in MEBIBYTES]
    lines = {"ring in buckets": (MEBIBYTES, curve)}
    result = {"conditions": run.conditions(tensors=len(grads)), "seconds": seconds}
    return run.finish(
        result | {"speedup": speedup, "target": TARGET},
        tables=[Table("Mean of a ResNet-50 gradient", columns, cells)],
        notes=[f"target: {TARGET} {faster}"],
        plots=[Plot("Fusion", ("bucket size (MiB)", faster), lines)],
    )


def resnet50_shapes() -> dict[str, tuple[int, ...]]:
    """Shapes of the 161 parameter tensors of a ResNet-50 with 1000 classes."""
    shapes: dict[str, tuple[int, ...]] = {}

    def convolution(name: str, kernel: int, inputs: int, outputs: int) -> None:
        shapes[f"{name}/kernel"] = (kernel, kernel, inputs, outputs)
        shapes[f"{name}/scale"] = shapes[f"{name}/bias"] = (outputs,)

    convolution("stem", 7, 3, 64)
    channels = 64
    for stage, (blocks, width) in enumerate([(3, 64), (4, 128), (6, 256), (3, 512)]):
        for block in range(blocks):
            at = f"stage{stage}/block{block}"
            convolution(f"{at}/conv1", 1, channels, width)
            convolution(f"{at}/conv2", 3, width, width)
            convolution(f"{at}/conv3", 1, width, 4 * width)
            if block == 0:
                convolution(f"{at}/project", 1, channels, 4 * width)
            channels = 4 * width
    return {**shapes, "head/kernel": (2048, 1000), "head/bias": (1000,)}


def _per_tensor(workers: int) -> Callable[[Any], Any]:
    def mean(grads):
        return jax.tree.map(lambda g: ring_all_reduce(g, "data") / workers, grads)

    return mean


def _reducer(**knobs: Any) -> Callable[[Any], Any]:
    tx = all_reduce("data", **knobs)

    def mean(grads):
        return tx.update(grads, tx.init(grads))[0]

    return mean


def _mapped(program: Callable[[Any], Any], mesh: Mesh) -> Callable[[Any], Any]:
    def local(grads):
        grads = jax.tree.map(lambda g: g[0], grads)
        return jax.tree.map(lambda g: g[None], program(grads))

    spec = P("data")
    return jax.jit(
        jax.shard_map(local, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    )

"""What fusing the tensors of a gradient is worth (figure 2), and the bucket size.

The gradient of a ResNet-50 (He et al. 2016) is 161 tensors, most of them tiny. A ring
over each of them pays 2 (n - 1) latencies 161 times; in buckets, a few times. Horovod
(Sergeev and Del Balso 2018) reports up to 65 % from this fusion, over TCP.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from benchmarks.measure import interleaved, quartiles, ratio
from benchmarks.report import conditions, plot, save, show
from relaxjax.collectives import ring_all_reduce
from relaxjax.gradients._all_reduce import all_reduce

MEBIBYTES = (1, 2, 4, 8, 16, 25, 64)
ALONE = "one message per tensor"


def fusion(
    *, workers: int = 8, rounds: int = 20, out: str = "runs/bench"
) -> dict[str, Any]:
    """Times the ring over a ResNet-50 gradient, in buckets and tensor by tensor.

    Args:
      workers: number of devices.
      rounds: timed calls of each program, interleaved.
      out: folder for JSON and plot.

    Returns:
      What was measured, as saved.
    """
    mesh = Mesh(np.asarray(jax.devices()[:workers]), ("data",))
    sharding = NamedSharding(mesh, P("data"))
    grads = {
        name: jax.device_put(np.ones((workers, *shape), np.float32), sharding)
        for name, shape in resnet50_shapes().items()
    }
    programs = {ALONE: _per_tensor(workers), "psum": _reducer(algorithm="psum")}
    for size in MEBIBYTES:
        knobs: Any = {"algorithm": "ring", "bucket_bytes": size * 2**20}
        programs[f"{size} MiB buckets"] = _reducer(**knobs)
    runs = {}
    for name, program in programs.items():
        mapped = _mapped(program, mesh)
        runs[name] = lambda mapped=mapped: mapped(grads)
    seconds = interleaved(runs, rounds)
    result = {
        "conditions": conditions(workers=workers, rounds=rounds, tensors=len(grads)),
        "seconds": seconds,
        "speedup": {k: ratio(seconds[ALONE], s)._asdict() for k, s in seconds.items()},
        "target": 1.65,
    }
    _report(result, out)
    return result


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


def _report(result: dict[str, Any], out: str) -> None:
    print(result["conditions"])
    rows = []
    for name, seconds in result["seconds"].items():
        r = result["speedup"][name]
        interval = f"{r['median']:.2f} [{r['low']:.2f}, {r['high']:.2f}]"
        rows.append((name, *(1e3 * q for q in quartiles(seconds)), interval))
    columns = (
        "program",
        "lower ms",
        "median ms",
        "upper ms",
        f"times faster than {ALONE}",
    )
    show("Mean of a ResNet-50 gradient", columns, rows)
    print(f"target: {result['target']} times faster than {ALONE}")
    curve = [result["speedup"][f"{size} MiB buckets"]["median"] for size in MEBIBYTES]
    path = save(result, out, "fusion")
    axes = ("bucket size (MiB)", f"times faster than {ALONE}")
    plot(path, "Fusion", axes, {"ring in buckets": (MEBIBYTES, curve)})


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

"""Every all-reduce algorithm against `psum`, by size and worker count (figure 1).

One float32 array per worker, of 4 KiB to 64 MiB, summed over 2, 4 and 8 devices. The
hierarchical algorithm runs on hosts of two devices or more, two of them. On emulated
devices a message is a copy in memory and a rendezvous of threads: what is seen there is
what the algorithms cost in copies and in steps, not what a network would make of them.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from benchmarks.measure import interleaved, quartiles, ratio
from benchmarks.report import conditions, plot, save, show
from relaxjax.gradients._exact_mean import ALGORITHMS

WORKERS = (2, 4, 8)
KIBIBYTES = (4, 32, 256, 2048, 16384, 65536)
# Above this size a case takes a quarter of the rounds.
LARGE_KIBIBYTES = 2048
# One-shot holds n arrays on each of n devices; cases beyond this are left out.
LARGEST_TOTAL_BYTES = 2**31
AXES = ("host", "device")


def algorithms(*, rounds: int = 40, out: str = "runs/bench") -> dict[str, Any]:
    """Times each algorithm and `psum`, interleaved, for every size and worker count.

    Args:
      rounds: timed calls of each program; a quarter of them for sizes above 2 MiB, and
        at least 5.
      out: folder for JSON and plots.

    Returns:
      What was measured, as saved.
    """
    cases: list[dict[str, Any]] = []
    for workers in WORKERS:
        for kibibytes in KIBIBYTES:
            large = kibibytes > LARGE_KIBIBYTES
            turns = max(5, rounds // 4) if large else rounds
            seconds = interleaved(_runs(workers, kibibytes), turns)
            against = {
                k: ratio(s, seconds["psum"])._asdict() for k, s in seconds.items()
            }
            case = {"workers": workers, "kibibytes": kibibytes}
            cases.append({**case, "seconds": seconds, "ratio": against})
    result = {"conditions": conditions(rounds=rounds), "cases": cases}
    _report(result, out)
    return result


def _runs(workers: int, kibibytes: int) -> dict[str, Callable[[], Any]]:
    """The programs of one case, compiled when they are first called."""
    devices = np.asarray(jax.devices()[:workers]).reshape(-1, max(1, workers // 2))
    mesh = Mesh(devices, AXES)
    ones = np.ones((workers, 256 * kibibytes), np.float32)
    x = jax.device_put(ones, NamedSharding(mesh, P(AXES)))
    programs: dict[str, Callable[..., jax.Array]] = {"psum": lax.psum, **ALGORITHMS}
    if workers < 4:
        del programs["hierarchical"]  # which is two-shot, with one device per host
    if workers * x.nbytes > LARGEST_TOTAL_BYTES:
        del programs["one_shot"]
    return {
        name: functools.partial(_mapped(program, mesh, name), x)
        for name, program in programs.items()
    }


def _mapped(program: Callable[..., jax.Array], mesh: Mesh, name: str) -> Any:
    """Over both axes at once only where it has to be: the others see one axis."""
    axes: Any = AXES
    if name != "hierarchical":
        mesh, axes = Mesh(mesh.devices.ravel(), "data"), "data"
    spec = P(axes)
    return jax.jit(
        jax.shard_map(
            lambda x: program(x[0], axes)[None],
            mesh=mesh,
            in_specs=spec,
            out_specs=spec,
            check_vma=False,
        )
    )


def _report(result: dict[str, Any], out: str) -> None:
    print(result["conditions"])
    path = save(result, out, "algorithms")
    for workers in WORKERS:
        cases = [case for case in result["cases"] if case["workers"] == workers]
        sizes = [_size(case["kibibytes"]) for case in cases]
        medians = [quartiles(case["seconds"]["psum"])[1] for case in cases]
        rows = [("psum, ms", *(f"{1e3 * median:.2f}" for median in medians))]
        lines = {}
        for name in ALGORITHMS:
            ratios = [case["ratio"].get(name) for case in cases]
            rows.append((name, *map(_cell, ratios)))
            seen = [(s, r["median"]) for s, r in zip(sizes, ratios, strict=True) if r]
            lines[name] = ([s for s, _ in seen], [median for _, median in seen])
        show(f"Times psum, {workers} workers", ("algorithm", *sizes), rows)
        axes = ("size", "times psum")
        plot(path.with_name(f"algorithms{workers}"), f"{workers} workers", axes, lines)


def _cell(r: Mapping[str, float] | None) -> str:
    return "{median:.3g} [{low:.3g},{high:.3g}]".format(**r) if r else "-"


def _size(kibibytes: int) -> str:
    return f"{kibibytes} KiB" if kibibytes < 1024 else f"{kibibytes // 1024} MiB"

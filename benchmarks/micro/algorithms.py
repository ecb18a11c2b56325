"""Every all-reduce algorithm against `psum`, by size and worker count (figure 1).

One float32 array per worker, of 4 KiB to 64 MiB, summed over 2, 4 and 8 devices. The
hierarchical algorithm runs on two hosts of two devices or more. On emulated devices a
message is a copy in memory and a rendezvous of threads: what is seen there is what the
algorithms cost in copies and in steps, not what a network would make of them.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from benchmarks.measure import interleaved, quartiles, ratio
from benchmarks.report import Plot, Result, Rounds, Run, Table, benchmark
from relaxjax.collectives import EXACT_EXCHANGES

WORKERS = (2, 4, 8)
KIBIBYTES = (4, 32, 256, 2048, 16384, 65536)
# Above this size a case takes a quarter of the rounds, and at least 5.
LARGE_KIBIBYTES = 2048
# One-shot holds n arrays on each of n devices; cases beyond this are left out.
LARGEST_TOTAL_BYTES = 2**31
AXES = ("host", "device")
CANDIDATES = [name for name in EXACT_EXCHANGES if name != "psum"]


@benchmark("algorithms", devices=max(WORKERS))
def algorithms(run: Run, rounds: Rounds = 40) -> Result:
    """Every all-reduce algorithm against psum: 4 KiB to 64 MiB, 2, 4 and 8 devices."""
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
    figures = [
        _figure(workers, [case for case in cases if case["workers"] == workers])
        for workers in WORKERS
    ]
    return run.finish(
        {"conditions": run.conditions(), "cases": cases},
        tables=[table for table, _ in figures],
        plots=[plot for _, plot in figures],
    )


def _runs(workers: int, kibibytes: int) -> dict[str, Callable[[], Any]]:
    """The programs of one case, compiled when they are first called."""
    devices = np.asarray(jax.devices()[:workers]).reshape(-1, max(1, workers // 2))
    mesh = Mesh(devices, AXES)
    ones = np.ones((workers, 256 * kibibytes), np.float32)
    x = jax.device_put(ones, NamedSharding(mesh, P(AXES)))
    programs = {name: exchange.run for name, exchange in EXACT_EXCHANGES.items()}
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


def _figure(workers: int, cases: list[dict[str, Any]]) -> tuple[Table, Plot]:
    """The ratios at one number of workers."""
    sizes = [_size(case["kibibytes"]) for case in cases]
    medians = [quartiles(case["seconds"]["psum"])[1] for case in cases]
    rows = [("psum, ms", *(f"{1e3 * median:.2f}" for median in medians))]
    lines = {}
    for name in CANDIDATES:
        ratios = [case["ratio"].get(name) for case in cases]
        form = "{median:.3g} [{low:.3g},{high:.3g}]"
        rows.append((name, *(form.format(**r) if r else "-" for r in ratios)))
        seen = [(s, r["median"]) for s, r in zip(sizes, ratios, strict=True) if r]
        lines[name] = ([s for s, _ in seen], [median for _, median in seen])
    axes = ("size", "times psum")
    return (
        Table(f"Times psum, {workers} workers", ("algorithm", *sizes), rows),
        Plot(f"{workers} workers", axes, lines, str(workers)),
    )


def _size(kibibytes: int) -> str:
    return f"{kibibytes} KiB" if kibibytes < 1024 else f"{kibibytes // 1024} MiB"

"""Memory of a process that trains with each method, against plain all-reduce.

Every method has processes of its own. After some steps the kernel forgets their peak
(`/proc/PID/clear_refs`), and more steps follow:

    peak    the most that was resident in those steps, mean over the processes
    more    peak - that of `all_reduce` (of DDP: of fp32), also as models of 4 bytes d

Programs, libraries and what their compilation left behind are in all of them alike, or
nearly: a program of more operations is larger.

Cost: the start of the processes, for each method.
"""

import tempfile
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax

from benchmarks.network.methods import Method
from benchmarks.network.problem import Shape, problem, task
from benchmarks.network.report import PLAIN
from benchmarks.network.worker_processes import WorkerProcesses
from benchmarks.report import Result, Run, Table
from relaxjax.hosts import Loopback

STEPS = 4
_PROC = Path("/proc")


def memory(run: Run, methods: Sequence[Method], shape: Shape) -> Result:
    """Trains with every method for a little, over loopback, and reads the peaks.

    Without the plain method peaks stand alone.

    Raises:
      ValueError: this system has no `/proc`.
    """
    if not (_PROC / "self" / "clear_refs").exists():
        raise ValueError(f"--part memory reads peaks from {_PROC}, which Linux has")
    start, hosts = task(shape.width, shape.layers), shape.hosts
    model = sum(x.nbytes for x in jax.tree.leaves(start.params))
    peaks = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problem.npz"
        problem(start, processes=hosts, steps=64, windows=hosts).save(path)
        for method in methods:
            peaks[method.label] = _peak(method, path, hosts)
            print(method.label, peaks[method.label], flush=True)
            run.save({"peaks": peaks})  # in case it is ended here
    rows = [_row(m, peaks, model) for m in methods]
    table = Table.of(
        "Resident memory of a process",
        rows,
        "method",
        ("peak, MiB", lambda row: row["peak"] / 2**20),
        ("more than plain, MiB", lambda row: _mib(row["more"])),
        ("in models", lambda row: row["models"] or ""),
    )
    known = {"model": model, "torch": _torch()}
    conditions = run.conditions(**shape._asdict(), **known)
    return run.finish({"conditions": conditions, "rows": rows}, tables=[table])


def _torch() -> str | None:
    """PyTorch's version and build: libraries of CUDA would be resident too."""
    return import_module("torch").__version__ if find_spec("torch") else None


def _mib(more: float | None) -> str:
    return "" if more is None else f"{more / 2**20:+.1f}"


def _peak(method: Method, problem_file: Path, hosts: int) -> float:
    places = Loopback().open([str(i) for i in range(hosts)])
    with WorkerProcesses(method.system, list(places.values()), problem_file) as crew:
        crew.begin(method.label, method.plain(steps=1000))
        count = -(-STEPS // method.period) * method.period
        crew.steps(method.label, max(count, method.start + 2))
        for pid in crew.pids():
            (_PROC / str(pid) / "clear_refs").write_text("5")
        crew.steps(method.label, count)
        return sum(map(_high_water, crew.pids())) / hosts


def _high_water(pid: int) -> int:
    """The most bytes that were resident since the kernel forgot its peak."""
    lines = (_PROC / str(pid) / "status").read_text().splitlines()
    (kib,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return 1024 * int(kib)


def _row(method: Method, peaks: dict[str, float], model: int) -> dict[str, Any]:
    peak, plain = peaks[method.label], peaks.get(PLAIN[method.system])
    more = None if plain is None else peak - plain
    return {
        "method": method.label,
        "peak": peak,
        "more": more,
        "models": None if more is None else round(more / model, 2),
    }

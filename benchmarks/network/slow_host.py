"""One host at half its processor: what every method loses by it.

A host's fair share is cores / hosts; half of it is set as the quota of a control group
(cgroups, version 1 or 2), in which the first host's processes then are.

    loss = seconds of a step with the quota / without, in neighboring blocks

In lock step every synchronous method waits for the slowest in each step, local steps
once in a round, and gossip waits for the neighbor of the neighbor: the table says
what lock step costs, not what an asynchronous runtime would gain.

Cost: two blocks of each method in each round.
"""

import os
import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from benchmarks.measure import ratio
from benchmarks.network.lab import BUDGET, STEPS, Lab
from benchmarks.network.methods import Method
from benchmarks.network.problem import Shape
from benchmarks.report import Result, Run, Table

_ROOT = Path("/sys/fs/cgroup")
_PERIOD = 100_000  # microseconds
RATE = 200.0  # Mbit/s


class Quota:
    """A control group whose processes together get so many cores.

    Args:
      cores: number of cores, such as 0.25.
      root: folder of the control groups.

    Raises:
      OSError: there are no control groups, or none may be made.
    """

    def __init__(self, cores: float, root: Path = _ROOT):
        quota = round(cores * _PERIOD)
        old = root / "cpu"
        name = f"relaxjax{os.getpid()}"
        self._home = old if old.is_dir() else root
        self._group = self._home / name
        if self._home == root:
            (root / "cgroup.subtree_control").write_text("+cpu")
        self._group.mkdir()
        try:
            if self._home == old:
                (self._group / "cpu.cfs_period_us").write_text(str(_PERIOD))
                (self._group / "cpu.cfs_quota_us").write_text(str(quota))
            else:
                (self._group / "cpu.max").write_text(f"{quota} {_PERIOD}")
        except OSError:
            self.close()
            raise

    def hold(self, pids: Sequence[int]) -> None:
        """Puts processes under the quota."""
        self._move(self._group, pids)

    def free(self, pids: Sequence[int]) -> None:
        """Takes processes out of the quota."""
        self._move(self._home, pids)

    def close(self) -> None:
        """Removes the group, in which no process may be left."""
        with suppress(FileNotFoundError):
            self._group.rmdir()

    def _move(self, group: Path, pids: Sequence[int]) -> None:
        for pid in pids:
            (group / "cgroup.procs").write_text(str(pid))


def slow_host(
    run: Run, methods: Sequence[Method], shape: Shape, *, rounds: int, seed: int = 0
) -> Result:
    """Times blocks of every method in random order, the first host held and not.

    Raises:
      OSError: no control group can be made here.
    """
    cores, rng = (os.cpu_count() or 1) / shape.hosts / 2, random.Random(seed)
    seconds: dict[str, list[list[float]]] = {m.label: [[], []] for m in methods}
    quota = Quota(cores)
    try:
        with Lab(methods, shape, steps=1000) as lab:
            lab.shape(RATE)
            for _ in range(rounds):
                for method in rng.sample(methods, len(methods)):
                    pids = [crew.pids()[0] for crew in lab.crews.values()]
                    for held in rng.sample([False, True], 2):
                        (quota.hold if held else quota.free)(pids)
                        block = lab.block(method, steps=STEPS, budget=BUDGET)
                        seconds[method.label][held].append(block["seconds"])
                        print(method.label, held, block, flush=True)
                    quota.free(pids)
    finally:
        quota.close()
    losses = {n: ratio(held, free) for n, (free, held) in seconds.items()}
    title = f"One host at {cores:g} of a core, {RATE:g} Mbit/s: step / step without"
    known = {"quota": cores, "rate": RATE, "rounds": rounds}
    return run.finish(
        {
            "conditions": run.conditions(**shape._asdict(), **known),
            "seconds": seconds,
            "losses": {n: loss._asdict() for n, loss in losses.items()},
        },
        tables=[
            Table(
                title,
                ("method", "ratio", "pairs"),
                [(n, str(loss), loss.pairs) for n, loss in losses.items()],
            )
        ],
    )

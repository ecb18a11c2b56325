"""One host at half its processor: what every method loses by it.

A host's fair share is cores / hosts; half of it is set as the quota of a control group
(cgroups, version 1 or 2), in which the first host's processes then are.

    loss = seconds of a step with the quota / without, in neighbouring blocks

In lock step every synchronous method waits for the slowest in each step, local steps
once in a round, and gossip waits for the neighbour of the neighbour: the table says
what lock step costs, not what an asynchronous runtime would gain.

Cost: two blocks of each method in each round.
"""

import os
import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.measure import ratio
from benchmarks.network.curves import HOSTS
from benchmarks.network.lab import BUDGET, STEPS, Lab
from benchmarks.network.methods import Method, available
from benchmarks.report import conditions, save, show

_ROOT = Path("/sys/fs/cgroup")
_PERIOD = 100_000  # microseconds
RATE = 200.0


class Quota:
    """A control group whose processes together get so much of a core.

    Args:
      cores: how much.
      root: where control groups are.

    Raises:
      OSError: there are none, or they may not be made.
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
        """Puts processes under the quota.

        Args:
          pids: which.
        """
        self._move(self._group, pids)

    def free(self, pids: Sequence[int]) -> None:
        """Lets them go.

        Args:
          pids: which.
        """
        self._move(self._home, pids)

    def close(self) -> None:
        """Removes the group, of which no process may be left."""
        with suppress(FileNotFoundError):
            self._group.rmdir()

    def _move(self, group: Path, pids: Sequence[int]) -> None:
        for pid in pids:
            (group / "cgroup.procs").write_text(str(pid))


def slow_host(
    *,
    methods: Sequence[Method],
    width: int,
    layers: int,
    rounds: int = 4,
    rate: float = RATE,
    hosts: int = HOSTS,
    seed: int = 0,
    out: str = "runs/bench",
) -> dict[str, Any]:
    """Times blocks of every method, with the first host held and not.

    Args:
      methods: rows.
      width: of the model.
      layers: of the model.
      rounds: in random order.
      rate: of the links, in Mbit/s.
      hosts: how many.
      seed: of the order.
      out: folder of the JSON.

    Returns:
      What was measured, as saved.

    Raises:
      OSError: no control group can be made here.
    """
    methods, cores = available(methods), (os.cpu_count() or 1) / hosts / 2
    shape = {"width": width, "layers": layers, "hosts": hosts}
    rng = random.Random(seed)
    seconds: dict[str, list[list[float]]] = {m.label: [[], []] for m in methods}
    quota = Quota(cores)
    try:
        with Lab(methods, **shape, steps=1000) as lab:
            lab.shape(rate)
            for _ in range(rounds):
                for method in rng.sample(methods, len(methods)):
                    pids = [crew.pids()[0] for crew in lab.crews.values()]
                    for held in rng.sample([False, True], 2):
                        (quota.hold if held else quota.free)(pids)
                        found = lab.block(method, steps=STEPS, budget=BUDGET)
                        seconds[method.label][held].append(found["seconds"])
                        print(method.label, held, found, flush=True)
                    quota.free(pids)
    finally:
        quota.close()
    losses = {n: ratio(held, free) for n, (free, held) in seconds.items()}
    result = {
        "conditions": conditions(**shape, quota=cores, rate=rate, rounds=rounds),
        "seconds": seconds,
        "losses": {n: found._asdict() for n, found in losses.items()},
    }
    save(result, out, "network_slow")
    rows = [(n, str(found), found.pairs) for n, found in losses.items()]
    title = f"One host at {cores:g} of a core, {rate:g} Mbit/s: step / step without"
    show(title, ("method", "ratio", "pairs"), rows)
    return result

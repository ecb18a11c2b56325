"""The processes of a fleet: started in their places, awaited and ended together.

Cost: servers start together, then workers; a few seconds of imports each.
"""

import os
import secrets
import time
from collections.abc import Callable
from contextlib import ExitStack
from multiprocessing.connection import wait as ready_pipes
from typing import Any, NamedTuple

import optax

from benchmarks.testbed.message import TransferError
from benchmarks.testbed.model import LayerModel
from benchmarks.testbed.process import Child, ProcessSetting
from benchmarks.testbed.records import Served, Working
from benchmarks.testbed.server import serve
from benchmarks.testbed.worker import work
from relaxjax.hosts import Links


class FleetPlan(NamedTuple):
    """What a crew is made of.

    Attributes:
      model: the model of every worker.
      owner: index of the server of each leaf.
      optimizer: makes the optax transformation of the servers, or None.
      workers: number of workers.
      servers: number of servers.
      wait: seconds without a byte after which a transfer is lost.
      patience: seconds that all answers may take.
      platform: platform of the workers' JAX.
      threads: threads of XLA's CPU backend in each process.
      pin: whether each worker is bound to a core.
    """

    model: LayerModel
    owner: dict[str, int]
    optimizer: Callable[[], optax.GradientTransformation] | None
    workers: int
    servers: int
    wait: float
    patience: float
    platform: str | None
    threads: int | None
    pin: bool


class FleetProcesses:
    """Servers and workers, running.

    Raises:
      TypeError: something that cannot be sent to a process.
      OSError: the links could not be made.
    """

    def __init__(self, plan: FleetPlan, links: Links):
        self._plan = plan
        self.servers: list[Child] = []
        self.workers: list[Child] = []
        with ExitStack() as stack:
            stack.callback(links.close)
            stack.callback(self._end)
            names = [f"server {i}" for i in range(plan.servers)]
            names += [f"worker {i}" for i in range(plan.workers)]
            places = links.open(names)
            token = secrets.token_hex(16)
            for i in range(plan.servers):
                self._add_server(i, places[f"server {i}"], token)
            ports = self.hear(self.servers)
            at = [(places[f"server {i}"].address, p) for i, p in enumerate(ports)]
            for i in range(plan.workers):
                self._add_worker(i, places[f"worker {i}"], token, at)
            self.hear(self.workers)
            self.close = stack.pop_all().close

    def hear(self, children: list[Child]) -> list[Any]:
        """What each of these children sends next.

        Raises:
          TransferError: a transfer did not come, or no answer in time.
          RuntimeError: a process failed otherwise.
        """
        answers: dict[Child, Any] = {}
        until = time.monotonic() + self._plan.patience
        while missing := [child for child in children if child not in answers]:
            left = max(0.0, until - time.monotonic())
            ready = ready_pipes([child.pipe for child in missing], left)
            if not ready:
                raise TransferError(
                    f"{', '.join(child.name for child in missing)}: no answer in "
                    f"patience={self._plan.patience} s"
                )
            for child in missing:
                if child.pipe in ready:
                    answers[child] = child.heard()
        return [answers[child] for child in children]

    def _add_server(self, i: int, place: Any, token: str) -> None:
        plan = self._plan
        leaves = {n: a for n, a in plan.model.leaves.items() if plan.owner[n] == i}
        config = Served(leaves, plan.optimizer, plan.workers, plan.wait, token, place)
        setting = ProcessSetting(place.namespace, "cpu", plan.threads, None)
        self.servers.append(Child(f"server {i}", serve, config, setting))

    def _add_worker(
        self, i: int, place: Any, token: str, servers: list[tuple[str, int]]
    ) -> None:
        plan = self._plan
        bare = plan.model.shapes_only()
        config = Working(i, bare, servers, plan.owner, plan.wait, token, place)
        cores = _core(i) if plan.pin else None
        setting = ProcessSetting(place.namespace, plan.platform, plan.threads, cores)
        self.workers.append(Child(f"worker {i}", work, config, setting))

    def _end(self) -> None:
        """Closes every pipe, then waits for each process."""
        children = [*self.workers, *self.servers]
        self.workers, self.servers = [], []
        for child in children:
            child.pipe.close()
        for child in children:
            child.end()


def _core(i: int) -> tuple[int, ...]:
    cores = sorted(os.sched_getaffinity(0))
    return (cores[i % len(cores)],)

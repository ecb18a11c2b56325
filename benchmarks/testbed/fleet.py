"""A fleet: servers and workers as processes, and steps of all of them together.

Source: Hashemi, Abdu Jyothi and Campbell, "TicTac: Accelerating Distributed Deep
Learning with Communication Scheduling", MLSys 2019: synchronous parameter servers, an
order of the pulls that is kept by the servers.

Cost: each process a few seconds of imports and some 200 MB; a step moves, for each
worker, the parameters once, and in training the gradients once.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import optax

from benchmarks.testbed.checks import owners, shares
from benchmarks.testbed.crew import FleetPlan, FleetProcesses
from benchmarks.testbed.model import LayerModel
from benchmarks.testbed.process import Child
from benchmarks.testbed.records import Command
from benchmarks.testbed.step import Step
from relaxjax._core._checks import check_type
from relaxjax._core.foreign._fields import check_rate
from relaxjax.hosts import Links, Loopback
from relaxjax.schedule.graphs._check_graph import check_order

Order = Sequence[str] | Sequence[Sequence[str]]


class Fleet:
    """Parameter servers and workers as processes; leave it to end them.

    Args:
      model: the model: its layers, and its loss for training.
      optimizer: an importable function without arguments that makes the optax
        transformation, such as `functools.partial(optax.adam, 1e-3)`. It runs at the
        servers, on each leaf by itself. None: inference only.
      workers: number of processes that compute.
      servers: number of processes that hold leaves: whole ones, the largest first, to
        the least loaded.
      links: `Loopback()` or `Namespaces(rate)`.
      wait: seconds without a byte after which a transfer is lost, an error that names
        it and its server.
      patience: seconds after which a step that has not ended is an error.
      platform: platform of the workers' JAX, such as "cpu" or "cuda"; None: JAX's
        choice. Servers are always on the CPU.
      threads: threads of XLA's CPU backend in each process; None: XLA's choice.
      pin: binds worker i to core i modulo the machine's; servers run anywhere.

    Raises:
      TypeError: an argument has another type, or cannot be sent to a process.
      ValueError: there are more servers than leaves, a count is below 1, or the
        optimizer looks at several leaves together.

    Example:
      In a script the last two statements stand under `if __name__ == "__main__":`,
      as processes import it again.

      >>> import operator
      >>> from benchmarks.testbed import Layer
      >>> model = LayerModel([Layer("scale", operator.mul, np.full(2, 3.0, "f4"))])
      >>> with Fleet(model) as fleet:
      ...     print(fleet.infer(np.ones((1, 2), "f4")).result)
      [[3. 3.]]
    """

    def __init__(
        self,
        model: LayerModel,
        *,
        optimizer: Callable[[], optax.GradientTransformation] | None = None,
        workers: int = 1,
        servers: int = 1,
        links: Links | None = None,
        wait: float = 60.0,
        patience: float = 600.0,
        platform: str | None = "cpu",
        threads: int | None = None,
        pin: bool = False,
    ):
        check_type("model", model, LayerModel, "give LayerModel([Layer(...), ...])")
        self.model, self.owner = model, owners(model, optimizer, workers, servers)
        check_rate("wait", "seconds", wait)
        check_rate("patience", "seconds", patience)
        plan = FleetPlan(
            model,
            self.owner,
            optimizer,
            workers=workers,
            servers=servers,
            wait=wait,
            patience=patience,
            platform=platform,
            threads=threads,
            pin=pin,
        )
        self._trains = model.loss is not None and optimizer is not None
        self._version = 0
        self._crew = FleetProcesses(plan, Loopback() if links is None else links)

    def infer(self, inputs: Any, *, order: Order | None = None) -> Step:
        """Pulls the parameters and computes the output of a batch.

        Args:
          inputs: a pytree of arrays, rows first; each worker gets an equal share.
          order: every leaf once, the first to be sent first; or such a list for each
            worker; by default the order of the layers.

        Returns:
          The step; `result` is the output's rows.

        Raises:
          TransferError: a transfer did not come, or a process is gone.
          ValueError: the order misses, repeats or invents a leaf, or the workers cannot
            share the rows.
        """
        works = self._run("infer", order, inputs)
        return Step(works, np.concatenate([work.result for work in works]))

    def train(self, inputs: Any, targets: Any, *, order: Order | None = None) -> Step:
        """Pulls, forward, backward, pushes; the servers update when all have pushed.

        Args:
          inputs: as in `infer`.
          targets: targets of the rows.
          order: as in `infer`.

        Returns:
          The step; `result` is the mean loss, before the update.

        Raises:
          TransferError: see `infer`.
          ValueError: see `infer`; or there is no loss or no optimizer.
        """
        if not self._trains:
            raise ValueError(
                "train needs LayerModel(loss=...) and Fleet(optimizer=...)"
            )
        works = self._run("train", order, (inputs, targets))
        self._version += 1
        return Step(works, float(np.mean([work.result for work in works])))

    def pull(self, *, order: Order | None = None) -> Step:
        """Pulls the parameters and computes nothing: how long the links take.

        Args:
          order: as in `infer`.

        Returns:
          The step; `result` is the first worker's leaves by name.
        """
        works = self._run("pull", order, None)
        return Step(works, works[0].result)

    def params(self) -> list[Any]:
        """Each layer's params as they are now, from the servers."""
        servers = self._open().servers
        for server in servers:
            server.tell("values")
        leaves: dict[str, np.ndarray] = {}
        for own in self._heard(servers):
            leaves |= own
        return self.model.unflatten(leaves)

    def close(self) -> None:
        """Ends every process and takes the links away; may be called twice."""
        self._crew.close()

    def __enter__(self) -> "Fleet":
        """Returns itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Ends it."""
        self.close()

    def _run(self, kind: str, order: Order | None, batch: Any) -> tuple:
        workers = self._open().workers
        orders, rows = self._orders(order), shares(batch, len(workers))
        for child, own, share in zip(workers, orders, rows, strict=True):
            child.tell(Command(kind, own, self._version, share))
        return tuple(self._heard(workers))

    def _open(self) -> FleetProcesses:
        if not self._crew.workers:
            raise ValueError("the fleet is closed, by close() or by an error")
        return self._crew

    def _heard(self, children: list[Child]) -> list[Any]:
        """What each child sends; whatever goes wrong ends the fleet."""
        try:
            return self._crew.hear(children)
        except BaseException:
            self.close()
            raise

    def _orders(self, order: Order | None) -> list[list[str]]:
        leaves, n = list(self.model.leaves), len(self._crew.workers)
        every: list[Any] = [leaves if order is None else order] * n
        if order and not isinstance(order[0], str):
            if len(order) != n:
                raise ValueError(f"order holds {len(order)} lists for {n} workers")
            every = list(order)
        return [check_order(leaves, own) for own in every]

"""One cell of the testbed: so many workers and servers, inference or training.

1. The link's rate is set so that communication over computation is `ratio`, on the
   busiest link: pulls (and pushes) of all its workers against one worker's operations.
2. Steps in layer order time each operation, pulls alone time the link; from these come
   the graph, its orders, and a prediction for each order.
3. All orders take turns, in every round in another sequence.
"""

import random
from collections.abc import Callable
from functools import partial
from statistics import fmean, median
from typing import Any, NamedTuple

import numpy as np
import optax

from benchmarks.testbed import Fleet, Loopback, Namespaces, Step, measured_graph
from benchmarks.testbed.cell_plan import Cell, CellPlan
from benchmarks.testbed.model import LayerModel
from relaxjax.hosts import Links
from relaxjax.schedule import Link

OPTIMIZER = partial(optax.sgd, 1e-3)
LINKS: dict[str, Callable[[float], Links]] = {
    "namespaces": Namespaces,
    "loopback": Loopback,
}
TIMED, WARM, AGAIN = 5, 2, 4
"""Numbers of timed steps, of steps before them, and of TAC's steps in a round."""


class Options(NamedTuple):
    """What holds for every cell.

    Attributes:
      rows: rows of each worker.
      rounds: rounds in which every order runs once, TAC and no order four times.
      orders: number of random orders.
      ratio: communication over computation.
      links: "namespaces" or "loopback".
      pin: whether worker i is bound to core i modulo the machine's.
      wait: seconds without a byte after which a transfer is lost.
    """

    rows: int
    rounds: int
    orders: int
    ratio: float
    links: str
    pin: bool = True
    wait: float = 60.0


class Bench:
    """A fleet in which one mode is run."""

    def __init__(self, model: LayerModel, cell: Cell, options: Options, links: Links):
        self.fleet = Fleet(
            model,
            optimizer=OPTIMIZER if cell.mode == "training" else None,
            workers=cell.workers,
            servers=cell.servers,
            links=links,
            wait=options.wait,
            threads=1,
            pin=options.pin,
        )
        rng = np.random.default_rng(0)
        width = model.leaves["stem/params"].shape[0]
        shape = (cell.workers * options.rows, width)
        self._batch = [rng.standard_normal(shape).astype(np.float32) for _ in range(2)]
        self._train = cell.mode == "training"

    def step(self, order: Any = None) -> Step:
        """One step; `order` as in `Fleet`."""
        inputs, targets = self._batch
        if self._train:
            return self.fleet.train(inputs, targets, order=order)
        return self.fleet.infer(inputs, order=order)

    def steps(self, count: int) -> list[Step]:
        """Steps in layer order, after some that compile."""
        for _ in range(WARM):
            self.step()
        return [self.step() for _ in range(count)]


def computation(model: LayerModel, cell: Cell, options: Options) -> float:
    """Seconds of one worker's operations where nothing is slow to arrive."""
    bench = Bench(model, cell, options, Loopback())
    with bench.fleet:
        return measured_graph(model, bench.steps(TIMED), Link()).computation


def run_cell(model: LayerModel, cell: Cell, options: Options) -> dict[str, Any]:
    """Seconds of every step of a cell by order, predictions, and the calibration."""
    nbytes = sum(model.nbytes.values())
    both = 2 if cell.mode == "training" else 1
    busiest = both * nbytes * max(1.0, cell.workers / cell.servers)
    rate = busiest / (options.ratio * computation(model, cell, options))
    bench = Bench(model, cell, options, LINKS[options.links](rate))
    with bench.fleet:
        timed = bench.steps(TIMED)
        pulled = median(bench.fleet.pull().seconds for _ in range(TIMED))
        plan = CellPlan.of(model, cell, timed, rate, pulled)
        orders = plan.orders(options.orders)
        steps = _take_turns(bench, orders, cell.workers, options.rounds)
    return {
        **cell._asdict(),
        "rate": rate,
        "link_efficiency": plan.link.bandwidth / rate,
        "computation": plan.graph.computation,
        "communication": both * plan.graph.communication,
        "orders": orders,
        "predicted": plan.predictions(orders),
        "seconds": {
            name: [step.seconds for step in taken] for name, taken in steps.items()
        },
        "stragglers": {
            name: fmean(step.straggler_effect for step in taken)
            for name, taken in steps.items()
        },
        "seen": {
            name: len({order for step in taken for order in step.orders})
            for name, taken in steps.items()
        },
    }


def _take_turns(
    bench: Bench, orders: dict[str, list[str]], workers: int, rounds: int
) -> dict[str, list[Step]]:
    """Steps by order; "none" is another random order for every worker and step."""
    rng = random.Random(0)
    turns = [*orders, *["tac"] * (AGAIN - 1), *["none"] * AGAIN]
    steps: dict[str, list[Step]] = {name: [] for name in (*orders, "none")}
    names = list(orders["layer"])
    for _ in range(rounds):
        rng.shuffle(turns)
        for name in turns:
            mixed = [rng.sample(names, len(names)) for _ in range(workers)]
            steps[name].append(bench.step(orders.get(name, mixed)))
    return steps

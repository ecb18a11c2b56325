"""`--order`: found from the task's own program, and shown beside what was compiled."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import optax
from jax.sharding import Mesh
from rich.console import Console
from rich.table import Table

from relaxjax import ps, schedule
from relaxjax.schedule import Graph
from relaxjax.tasks import Task, train_step_of
from relaxjax.workers import Emulation, data_parallel, init

_WAYS: dict[str, Callable[[Graph, int], list[str]]] = {
    "tac": lambda graph, seed: schedule.tac(graph),
    "tic": lambda graph, seed: schedule.tic(graph),
    "best": lambda graph, seed: schedule.best(graph),
    "random": lambda graph, seed: schedule.random_order(graph, seed=seed),
    "layer": lambda graph, seed: schedule.layer_order(graph),
}


class Order(NamedTuple):
    """An order of transfers, and where it is from.

    Attributes:
      name: "tac", "tic", "best", "random" or "layer".
      graph: of one worker's step.
      names: leaf names, in order.
    """

    name: str
    graph: Graph
    names: tuple[str, ...]


def find(name: str, task: Task, rows: int, seed: int) -> Order:
    """Traces the task's loss, and orders the transfers of its parameters.

    Args:
      name: of the order.
      task: data and model.
      rows: of a worker's part of a batch.
      seed: of a random order.
    """
    batch = next(task.batches(seed, rows))
    graph = Graph.from_loss(task.loss, task.params, batch)
    return Order(name, graph, tuple(_WAYS[name](graph, seed)))


def report(
    order: Order,
    task: Task,
    tx: optax.GradientTransformation,
    mesh: Mesh | Emulation,
    rows: int,
    out: Path,
    console: Console,
) -> None:
    """Prints the order asked for beside the compiled one, and writes `order.json`.

    Args:
      order: what was asked for.
      task: data and model.
      tx: the whole transformation.
      mesh: where the workers are.
      rows: of each batch, over all workers.
      out: folder for the timelines, simulated and recorded.
      console: to print on.
    """
    if isinstance(mesh, Emulation) or jax.process_count() > 1:
        console.print(
            "The order of the compiled program is shown for workers on devices of one "
            "process; these are not.",
            soft_wrap=True,
        )
        return
    step = data_parallel(train_step_of(task, tx), mesh)
    args: tuple[Any, ...] = (*init(tx, task.params, mesh), next(task.batches(0, rows)))
    compiled = ps.compiled_order(step, *args)
    console.print(table(order, compiled))
    policy = schedule.ordered(f"{order.name}, simulated", order.names)
    cluster = schedule.Cluster(workers=mesh.size, servers=mesh.size)
    simulated = schedule.simulate(order.graph, policy, cluster)
    recorded = schedule.record(step, *args, steps=1, name=f"{order.name}, compiled")
    simulated.save(out / "order.json", beside=[recorded])
    console.print(f"both timelines are in {out / 'order.json'}", soft_wrap=True)


def table(order: Order, compiled: ps.CompiledOrder) -> Table:
    """A row for each pull: as asked for, as compiled, and the push in its place."""
    title = f"Transfers, order {order.name}"
    columns = ("", "pull, asked for", "pull, compiled", "push, compiled")
    result = Table(*columns, title=title)
    rows = zip(order.names, compiled.pulls, compiled.pushes, strict=True)
    for place, names in enumerate(rows, start=1):
        result.add_row(str(place), *names)
    return result

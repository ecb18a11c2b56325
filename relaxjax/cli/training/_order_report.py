"""`--order`: found from the task's own program, and shown beside the compiled order."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import optax
from jax.sharding import Mesh
from rich.console import Console
from rich.table import Table
from rich.text import Text

from relaxjax import hosts, ps, schedule
from relaxjax.cli.printed._tables import show
from relaxjax.cli.training._job import Order
from relaxjax.compare import start
from relaxjax.schedule import Graph
from relaxjax.tasks import Task, train_step_of
from relaxjax.workers import Emulation, data_parallel

_WAYS: dict[str, Callable[[Graph, int], list[str]]] = {
    "tac": lambda graph, seed: schedule.tac(graph),
    "tic": lambda graph, seed: schedule.tic(graph),
    "best": lambda graph, seed: schedule.best(graph),
    "random": lambda graph, seed: schedule.random_order(graph, seed=seed),
    "layer": lambda graph, seed: schedule.layer_order(graph),
}


def find(name: str, task: Task, rows: int, seed: int) -> Order:
    """Traces the task's loss on one worker's rows, and orders its transfers."""
    batch = next(task.batches(seed, rows))
    graph = Graph.from_loss(_loss_alone(task), task.params, batch)
    return Order(name, graph, tuple(_WAYS[name](graph, seed)))


def _loss_alone(task: Task) -> Callable[[Any, Any], jax.Array]:
    """The task's loss, without the state that it returns beside it."""
    if task.state is None:
        return task.loss

    def loss(params, batch):
        own = jax.tree.map(lambda x: x, task.state)  # flax.nnx changes it in place
        return task.loss(params, own, batch)[0]

    return loss


def report(
    order: Order,
    task: Task,
    tx: optax.GradientTransformation,
    mesh: Mesh | Emulation,
    rows: int,
    out: Path,
    console: Console,
) -> None:
    """Prints the order asked for beside the compiled one.

    The timelines, simulated and recorded, go to `order.json` in the folder `out`.
    """
    if isinstance(mesh, Emulation) or jax.process_count() > 1:
        console.print(
            "The order of the compiled program is shown for workers on devices of one "
            "process; these are not.",
            soft_wrap=True,
        )
        return
    step = data_parallel(train_step_of(task, tx), mesh)
    args: tuple[Any, ...] = (*start(tx, task, mesh), next(task.batches(0, rows)))
    show(console, table(order, ps.compiled_order(step, *args)))
    policy = schedule.ordered(f"{order.name}, simulated", order.names)
    cluster = schedule.Cluster(workers=mesh.size, servers=mesh.size)
    simulated = schedule.simulate(order.graph, policy, cluster)
    recorded = schedule.record(step, *args, steps=1, name=f"{order.name}, compiled")
    with hosts.writing(out / "order.json"):
        simulated.save(out / "order.json", beside=[recorded])
    console.print(f"both timelines are in {out / 'order.json'}", soft_wrap=True)


def table(order: Order, compiled: ps.CompiledOrder) -> Table:
    """A row for each rank: the pull asked for, the compiled pull, the compiled push."""
    columns = ("", "pull, asked for", "pull, compiled", "push, compiled")
    result = Table(*columns, title=f"Transfers, order {order.name}")
    rows = zip(order.names, compiled.pulls, compiled.pushes, strict=True)
    for rank, names in enumerate(rows, start=1):
        result.add_row(str(rank), *map(Text, names))
    return result

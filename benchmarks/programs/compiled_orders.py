"""Orders of transfers in compiled programs: replayed, compared, reported.

The share of forward products between a pull's start and its done is what TicTac's
figures show; seconds that computation waits for transfers, each of which pays for
itself, are what a step costs.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.programs.overlap_models import Workload
from benchmarks.report import Result, Run, Table
from relaxjax.schedule import (
    Device,
    Graph,
    Link,
    Oracle,
    best,
    layer_order,
    random_order,
    replay,
    tac,
    tic,
)

MIB = 2**20
ORDERS: Mapping[str, Callable[[Graph], list[str]]] = {
    "layer": layer_order,
    "tac": tac,
    "tic": tic,
    "best": best,
    "reversed": lambda graph: layer_order(graph)[::-1],
}
TARGET = 0.6  # of forward products under a transfer, in the best order


def orders_of(
    training: Workload, oracle: Oracle, link: Link, random_orders: int
) -> dict[str, list[str]]:
    """Orders of a training's leaves by name: those of `ORDERS`, and random ones.

    Args:
      training: the training, whose graph they come from.
      oracle: seconds of its operations.
      link: the link of its transfers.
      random_orders: number of random orders.
    """
    arguments = training.loss, training.params, training.batch
    return named_orders(
        Graph.from_loss(*arguments, oracle=oracle, link=link), random_orders
    )


def named_orders(graph: Graph, random_orders: int) -> dict[str, list[str]]:
    """Orders of a graph's recvs by name: those of `ORDERS`, and random ones."""
    orders = {name: find(graph) for name, find in ORDERS.items()}
    for seed in range(random_orders):
        orders[f"random {seed}"] = random_order(graph, seed=seed)
    return orders


def compared(
    text_of: Callable[[Sequence[str], int], str],
    orders: Mapping[str, Sequence[str]],
    sizes: Sequence[int],
    device: Device,
    link: Link,
) -> list[dict[str, Any]]:
    """The replay of each order, in transfers of each size.

    Args:
      text_of: `text_of(order, size)`, the text of the scheduled program.
      orders: orders by name.
      sizes: the most bytes of a transfer.
      device: rates of the replay.
      link: the link of its transfers.
    """
    rows = []
    for size in sizes:
        for name, order in orders.items():
            rows.append(_row(name, size, text_of(order, size), device, link))
            print(rows[-1], flush=True)
    return rows


def _row(name: str, size: int, text: str, device: Device, link: Link) -> dict[str, Any]:
    run = replay(text, device=device, link=link)
    return {
        "order": name,
        "bytes": size,
        "transfers": len(run.transfers),
        "forward": run.forward_share,
        "backward": run.share,
        "exposed": run.exposed,
        "compute": run.compute,
    }


def report(
    run: Run, conditions: Mapping[str, Any], rows: list[dict[str, Any]], title: str
) -> Result:
    """Prints and saves what was compared."""
    table = Table.of(
        title,
        rows,
        "order",
        ("MiB", lambda row: row["bytes"] / MIB),
        "transfers",
        "forward",
        "backward",
        ("exposed ms", lambda row: 1e3 * row["exposed"]),
        ("compute ms", lambda row: 1e3 * row["compute"]),
    )
    target = (
        f"target: in the best order {TARGET:.0%} of the forward products under a "
        "transfer, in the reversed visibly less, random ones between"
    )
    result = {"conditions": conditions, "target": TARGET, "rows": rows}
    return run.finish(result, tables=[table], notes=[target])

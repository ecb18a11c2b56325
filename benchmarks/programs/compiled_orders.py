"""Orders of transfers in compiled programs: replayed, compared, reported.

The share of forward products between a pull's start and its done is what TicTac's
figures show; seconds that computation waits for transfers, each of which pays for
itself, are what a step costs.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.programs.overlap_models import Training
from benchmarks.report import save, show
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
COLUMNS = (
    "order",
    "MiB",
    "transfers",
    "forward",
    "backward",
    "exposed ms",
    "compute ms",
)


def orders_of(
    training: Training, oracle: Oracle, link: Link, random_orders: int
) -> dict[str, list[str]]:
    """Orders of a training's leaves by name: those of `ORDERS`, and random ones.

    Args:
      training: whose graph they come from.
      oracle: seconds of its operations.
      link: of its transfers.
      random_orders: how many.
    """
    given = training.loss, training.params, training.batch
    return named_orders(
        Graph.from_loss(*given, oracle=oracle, link=link), random_orders
    )


def named_orders(graph: Graph, random_orders: int) -> dict[str, list[str]]:
    """The same, of a graph.

    Args:
      graph: whose recvs are ordered.
      random_orders: how many.
    """
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
    """What a replay says of each order, in transfers of each size.

    Args:
      text_of: from an order and a size to the scheduled program.
      orders: by name.
      sizes: most bytes of a transfer.
      device: rates of the replay.
      link: of its transfers.
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


def report(result: dict[str, Any], title: str, out: str, name: str) -> None:
    """Prints what was compared, and saves it.

    Args:
      result: with conditions, rows and a target.
      title: of the table.
      out: folder for the JSON.
      name: of the file.
    """
    print(result["conditions"])
    cells = [
        (
            row["order"],
            row["bytes"] / MIB,
            row["transfers"],
            row["forward"],
            row["backward"],
            1e3 * row["exposed"],
            1e3 * row["compute"],
        )
        for row in result["rows"]
    ]
    show(title, COLUMNS, cells)
    print(
        f"target: in the best order {result['target']:.0%} of the forward products "
        "under a pull, in the reversed visibly less, random ones between"
    )
    save(result, out, name)

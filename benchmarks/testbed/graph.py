"""From measured steps to the graph that `relaxjax.schedule` orders and predicts.

TicTac's oracle takes an operation's smallest time of several runs; here it is the
median, since workers that share a machine's cores are predicted, not a quiet machine.

Cost: O(events).
"""

from collections.abc import Sequence
from statistics import median

from benchmarks.testbed.model import INPUT, LayerModel
from benchmarks.testbed.step import Step
from relaxjax.schedule import Cluster, Graph, Link, Policy
from relaxjax.schedule.simulator._placement import messages


def measured_graph(model: LayerModel, steps: Sequence[Step], link: Link) -> Graph:
    """The graph of one worker's step, its operations timed by earlier steps.

    Args:
      model: the model, whose layers are the operations and whose leaves the transfers.
      steps: steps of training, or steps of inference; the first few of a fleet compile,
        so leave them out.
      link: a worker's share of the network, which gives the seconds of each transfer.

    Returns:
      A graph; for training steps with "loss", "back <layer>" and the pushes.

    Raises:
      ValueError: there are no steps, or nothing was computed in them.
    """
    seconds: dict[str, list[float]] = {}
    for step in steps:
        for work in step.workers:
            for name, start, end in work.operations:
                seconds.setdefault(name, []).append(end - start)
    if not seconds:
        raise ValueError("steps hold no operations: give steps of infer() or train()")
    times = {name: median(own) for name, own in seconds.items()}
    ops = {
        name: (times[name], [*model.of_layer[name], *_inner(model, name)])
        for name in model.needs
    }
    recvs = {name: link.seconds(size) for name, size in model.nbytes.items()}
    if "loss" not in times:
        return Graph(recvs, ops, nbytes=model.nbytes)
    ops["loss"] = (times["loss"], [model.layers[-1].name])
    sends = {}
    for layer in reversed(model.layers):
        users = [n for n in model.needs if layer.name in model.needs[n]]
        after = [f"back {user}" for user in users] or ["loss"]
        ops[f"back {layer.name}"] = (times[f"back {layer.name}"], after)
        for name in model.of_layer[layer.name]:
            sends[name] = (recvs[name], [f"back {layer.name}"])
    return Graph(recvs, ops, sends, nbytes=model.nbytes)


def _inner(model: LayerModel, name: str) -> list[str]:
    return [need for need in model.needs[name] if need != INPUT]


def placed(model: LayerModel, servers: int) -> dict[str, int]:
    """The server of each leaf, as `relaxjax.schedule.simulate` places them.

    The largest leaf comes first, to the least loaded server.

    Args:
      model: the model, whose leaves are placed.
      servers: number of servers.
    """
    bare = Graph(dict.fromkeys(model.nbytes, 0.0), {}, nbytes=model.nbytes)
    parts_of, _ = messages(bare, Policy("whole"), Cluster(servers=servers))
    return {name: parts[0].server for name, parts in parts_of.items()}

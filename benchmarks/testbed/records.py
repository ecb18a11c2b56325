"""What the processes of a fleet receive, and what they report.

Cost: none; plain data.
"""

from typing import Any, NamedTuple

from benchmarks.testbed.model import LayerModel
from relaxjax.hosts import Place


class Served(NamedTuple):
    """The configuration of a server.

    Attributes:
      leaves: its own leaves, arrays by name.
      optimizer: makes the optax transformation, or None: parameters never change.
      workers: number of workers that push.
      wait: seconds that it waits for what is missing.
      token: token that a worker must show.
      place: where it runs.
    """

    leaves: dict[str, Any]
    optimizer: Any
    workers: int
    wait: float
    token: str
    place: Place


class Working(NamedTuple):
    """The configuration of a worker.

    Attributes:
      number: index of the worker.
      model: the model, with shapes in place of parameters.
      servers: address and port of each server.
      owner: index of the server of each leaf.
      wait: seconds that it waits for a transfer.
      token: token that it shows.
      place: where it runs.
    """

    number: int
    model: LayerModel
    servers: list[tuple[str, int]]
    owner: dict[str, int]
    wait: float
    token: str
    place: Place


class Command(NamedTuple):
    """What a worker is to do in one step.

    Attributes:
      kind: "pull", "infer" or "train".
      order: every leaf once, the first to be sent first.
      version: number of updates that the parameters have seen.
      batch: its rows: inputs, or (inputs, targets).
    """

    kind: str
    order: list[str]
    version: int
    batch: Any = None


class Event(NamedTuple):
    """Something that took time at a worker.

    Attributes:
      name: name of the operation or transfer.
      start: its start, in seconds since the worker began its step.
      end: its end, likewise.
    """

    name: str
    start: float
    end: float


class Work(NamedTuple):
    """One worker's step.

    Attributes:
      began: its start, in seconds on a clock that the machine's processes share.
      seconds: duration, until its servers had all its gradients.
      arrivals: pulls, as they arrived.
      pushes: gradients, as they were handed to the network; of each server in turn.
      operations: operations, as they ran.
      result: output rows, or the loss.
    """

    began: float
    seconds: float
    arrivals: tuple[Event, ...]
    pushes: tuple[Event, ...]
    operations: tuple[Event, ...]
    result: Any

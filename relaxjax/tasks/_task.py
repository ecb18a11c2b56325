"""What a task is: real data, a model, and how the two are judged."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np


@dataclass(frozen=True, kw_only=True)
class Data:
    """Which data a run has seen.

    Attributes:
      bytes: their size, training and held-out together.
      sha256: their digest, in hexadecimal.
    """

    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Task:
    """A problem to train on.

    Attributes:
      name: as on the command line.
      metric_name: what `metric` measures, on held-out data.
      data: size and digest of the data.
      params: the model's initial parameters, as for one device.
      loss: `loss(params, batch)`, the mean over the batch's rows.
      metric: `metric(params)`, jitted.
      batches: `batches(seed, rows)` yields whole batches for ever; the same for the
        same arguments.
      steps: default number of steps.
      batch_size: default number of rows, over all workers.
      learning_rate: default peak of the learning rate.
    """

    name: str
    metric_name: str
    data: Data
    params: Any
    loss: Callable[[Any, Any], jax.Array]
    metric: Callable[[Any], jax.Array]
    batches: Callable[[int, int], Iterator[Any]]
    steps: int
    batch_size: int
    learning_rate: float


def describe(blocks: Iterable[bytes]) -> Data:
    """Size and digest of some blocks of bytes, taken together."""
    digest, size = hashlib.sha256(), 0
    for block in blocks:
        digest.update(block)
        size += len(block)
    return Data(bytes=size, sha256=digest.hexdigest())


def shuffled(seed: int, count: int, rows: int) -> Iterator[np.ndarray]:
    """Batches of `rows` positions out of `count`: one permutation after another."""
    rng = np.random.default_rng(seed)
    stock = np.empty(0, np.int64)
    while True:
        while len(stock) < rows:
            stock = np.concatenate([stock, rng.permutation(count)])
        yield stock[:rows]
        stock = stock[rows:]

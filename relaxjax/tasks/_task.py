"""A task: data, a model, and a metric on data that it is not trained on."""

import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import numpy as np
import optax


@dataclass(frozen=True, kw_only=True)
class Data:
    """Identity of the data that a run has seen.

    Attributes:
      bytes: size of the data, training and held-out together.
      sha256: digest of the data, in hexadecimal.
    """

    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Task:
    """A problem to train on.

    Attributes:
      name: name of the task on the command line.
      metric_name: what `metric` measures, on held-out data.
      data: size and digest of the data.
      params: initial parameters of the model, as for one device.
      loss: `loss(params, batch)`, the mean over the rows of the batch; of a model with
        `state`, `loss(params, state, batch) -> (loss, state)`.
      metric: `metric(params)`, jitted, on test data; with `state`,
        `metric(params, state)`.
      batches: `batches(seed, rows)` yields whole batches forever; the same for the same
        arguments.
      steps: default number of steps.
      batch_size: default number of rows, over all workers.
      learning_rate: default peak of the learning rate.
      optimizer: `optimizer(learning_rate)` makes the optimizer from a schedule; None:
        AdamW, or what a relaxation is made for. Relaxations that are optimizers
        themselves, such as `one_bit_adam`, stand in its place.
      better: "higher" or "lower": which metric is the better one; "" means that
        accuracies should be high and all else low.
      state: what the model has besides params, such as batch statistics or a key; a
        pytree of arrays, or None.
      validation: like `metric`, on data for choosing settings; None if the task has no
        such data.
      split: makes the same task with a part of its training data kept for validation.
      split_note: where validation data come from, in a sentence.
      held_out: the test data as one batch, for models of one's own; None if there is
        no such batch.
    """

    name: str
    metric_name: str
    data: Data
    params: Any
    loss: Callable[..., Any]
    metric: Callable[..., jax.Array]
    batches: Callable[[int, int], Iterator[Any]]
    steps: int
    batch_size: int
    learning_rate: float
    optimizer: Callable[[optax.Schedule], optax.GradientTransformation] | None = None
    better: str = ""
    state: Any = None
    validation: Callable[..., jax.Array] | None = None
    split: Callable[[], "Task"] | None = None
    split_note: str = "the task's own validation data"
    held_out: Any = None

    def __post_init__(self) -> None:
        """Says which metric is better, if the task does not."""
        usual = "higher" if self.metric_name == "accuracy" else "lower"
        object.__setattr__(self, "better", self.better or usual)
        if self.better not in ("higher", "lower"):
            raise ValueError(
                f"better={self.better!r} must be 'higher' or 'lower': which values of "
                f"{self.metric_name} are the better ones"
            )


def task_of(task: Task) -> Task:
    """The task with validation data, which it has or which are split off.

    Raises:
      ValueError: it has none, and cannot be split.
    """
    if task.validation is not None:
        return task
    if task.split is None:
        raise ValueError(
            f"task {task.name!r} has no validation data to choose learning rates by: "
            "give Task(validation=...), a metric on data that are neither for training "
            "nor for the test, or make the task with relaxjax.tasks.of_arrays, which "
            "splits some off"
        )
    part = task.split()
    # Only what a split changes: the task may have another optimizer or rate by now.
    return replace(
        task,
        batches=part.batches,
        validation=part.validation,
        split=None,
        split_note=part.split_note,
    )


def next_batch(name: str, batches: Iterator[Any]) -> Any:
    """The next batch of a task of this name.

    Raises:
      ValueError: the batches have ended. (A StopIteration would end a caller's `map`.)
    """
    for batch in batches:
        return batch
    raise ValueError(
        f"task {name!r}: batches() has ended before the run: it must go on, as "
        "`while True: yield ...` does"
    )


def train_step_of(task: Task, tx: optax.GradientTransformation) -> Callable[..., Any]:
    """A train step as for one device; its metric is the loss.

    Args:
      task: the task to train on.
      tx: the transformation from gradients to updates.

    Returns:
      `step(params, opt_state, batch) -> (params, opt_state, metrics)`; for a task with
      a state, `step(params, opt_state, state, batch)` likewise.
    """
    if task.state is not None:
        return _step_with_state(task, tx)

    def train_step(params, opt_state, batch):
        loss, grads = jax.value_and_grad(task.loss)(params, batch)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, {"loss": loss}

    return train_step


def _step_with_state(task: Task, tx: optax.GradientTransformation) -> Any:
    def loss_of(params, state, batch):
        # A copy that belongs to this trace: flax.nnx changes its variables in place.
        return task.loss(params, jax.tree.map(lambda x: x, state), batch)

    def train_step(params, opt_state, state, batch):
        both = jax.value_and_grad(loss_of, has_aux=True)
        (loss, state), grads = both(params, state, batch)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, state, {"loss": loss}

    return train_step


class Optimizer(NamedTuple):
    """An optimizer to train tasks with.

    Attributes:
      make: makes the optimizer from a learning rate or a schedule of it.
      rate: its usual learning rate, as a multiple of AdamW's, which tasks state.
    """

    make: Callable[[Any], optax.GradientTransformation]
    rate: float


OPTIMIZERS = {
    "adamw": Optimizer(optax.adamw, 1.0),
    "momentum": Optimizer(functools.partial(optax.sgd, momentum=0.9), 10.0),
    "lamb": Optimizer(optax.lamb, 1.0),
    "muon": Optimizer(optax.contrib.muon, 2.0),
}


def optimizer_of(task: Task, parent: str = "adamw") -> Optimizer:
    """The task's own optimizer, at its own rates; where it has none, the parent.

    Args:
      task: the task.
      parent: a key of `OPTIMIZERS`.
    """
    if task.optimizer is None:
        return OPTIMIZERS[parent]
    return Optimizer(task.optimizer, 1.0)


def schedule(peak: float, steps: int) -> optax.Schedule:
    """A short warm-up and a cosine decay.

    Args:
      peak: highest learning rate.
      steps: number of steps that the optimizer takes.
    """
    return optax.warmup_cosine_decay_schedule(peak / 10, peak, steps // 10, steps + 1)


def adamw(peak: float, steps: int) -> optax.GradientTransformation:
    """AdamW with the learning rate of `schedule(peak, steps)`."""
    return OPTIMIZERS["adamw"].make(schedule(peak, steps))


def describe(blocks: Iterable[bytes]) -> Data:
    """Size and digest of blocks of bytes, taken together."""
    raw = b"".join(blocks)
    return Data(bytes=len(raw), sha256=hashlib.sha256(raw).hexdigest())


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """float32[], in nats: the mean over logits [..., classes] and labels [...]."""
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def shuffled(seed: int, count: int, rows: int) -> Iterator[np.ndarray]:
    """Batches of `rows` positions below `count`, from one permutation after another."""
    rng = np.random.default_rng(seed)
    stock = np.empty(0, np.int64)
    while True:
        while len(stock) < rows:
            stock = np.concatenate([stock, rng.permutation(count)])
        yield stock[:rows]
        stock = stock[rows:]

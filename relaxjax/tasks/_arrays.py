"""A task from arrays of rows: batches, metrics and the split follow from them."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from relaxjax.tasks._task import Data, Task, describe, shuffled

_SHARE = 0.1
_SPLIT_SEED = 0  # one split for all runs, so that they can be compared


def of_arrays(
    *,
    params: Any,
    loss: Callable[..., Any],
    metric: Callable[..., jax.Array],
    train: Any,
    test: Any,
    validation: Any = None,
    metric_name: str = "loss",
    better: str = "",
    state: Any = None,
    steps: int = 400,
    batch_size: int = 128,
    learning_rate: float = 1e-3,
    name: str = "task",
    data: Data | None = None,
) -> Task:
    """A task whose data are arrays with a row for each example.

    Args:
      params: initial parameters, as for one device.
      loss: `loss(params, batch)`, the mean over the rows of a batch of `train`; with
        `state`, `loss(params, state, batch) -> (loss, state)`.
      metric: `metric(params, rows)`, or `metric(params, state, rows)`, over all rows of
        `validation` or `test` at once; it is compiled.
      train: a pytree of arrays of equally many rows.
      test: likewise; read once, at the end of a run that is reported.
      validation: likewise, to choose settings by; None: where it is needed, a tenth of
        the rows of `train`, the same ones for all seeds, are taken for it.
      metric_name: what the metric measures.
      better: "higher" or "lower"; "" takes "higher" for the name "accuracy" and
        "lower" for all others.
      state: what the model has besides params: batch statistics, a key, or None.
      steps: default number of steps.
      batch_size: default number of rows of a step, over all workers.
      learning_rate: default peak of the learning rate.
      name: the task's name.
      data: identity of the data; None: that of all arrays together.

    Raises:
      ValueError: arrays of one part have different numbers of rows, or none.

    Example:
      >>> import jax.numpy as jnp, numpy as np
      >>> from relaxjax import tasks
      >>> x = np.linspace(-1, 1, 64, dtype=np.float32)
      >>> def loss(w, rows):
      ...     return jnp.mean((w * rows["x"] - rows["y"]) ** 2)
      >>> rows = {"x": x, "y": 3 * x}
      >>> task = tasks.of_arrays(
      ...     params=jnp.zeros(()), loss=loss, metric=loss, train=rows, test=rows
      ... )
      >>> next(task.batches(0, 4))["x"].shape, task.better
      ((4,), 'lower')
    """
    count = _rows("train", train)
    parts = {"train": train, "test": test, "validation": validation}
    for part in ("test", "validation"):
        if parts[part] is not None:
            _rows(part, parts[part])

    def batches(seed: int, rows: int) -> Iterator[Any]:
        for picked in shuffled(seed, count, rows):
            yield _picked(train, picked)

    def on(rows: Any) -> Callable[..., jax.Array]:
        arrays = jax.tree.map(jnp.asarray, rows)
        return jax.jit(lambda *model: metric(*model, arrays))

    task = Task(
        name=name,
        metric_name=metric_name,
        data=data or _identity(parts),
        params=params,
        loss=loss,
        metric=on(test),
        batches=batches,
        steps=steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
        better=better,
        state=state,
        validation=None if validation is None else on(validation),
    )

    def split() -> Task:
        order = np.random.default_rng(_SPLIT_SEED).permutation(count)
        cut = max(1, round(_SHARE * count))
        rest, kept = (
            _picked(train, np.sort(part)) for part in (order[cut:], order[:cut])
        )
        whole = of_arrays(
            params=params, loss=loss, metric=metric, train=rest, test=test,
            validation=kept, metric_name=metric_name, better=better, state=state,
            steps=steps, batch_size=batch_size, learning_rate=learning_rate, name=name,
            data=task.data,
        )  # fmt: skip
        note = f"{cut} of {count} training rows, drawn once with a fixed seed"
        return replace(whole, split_note=note)

    return task if validation is not None else replace(task, split=split)


def _identity(tree: Any) -> Data:
    return describe(np.ascontiguousarray(x).tobytes() for x in jax.tree.leaves(tree))


def _picked(tree: Any, rows: np.ndarray) -> Any:
    return jax.tree.map(lambda x: np.asarray(x)[rows], tree)


def _rows(part: str, tree: Any) -> int:
    """The number of rows of all arrays of a part."""
    counts = {len(x) for x in jax.tree.leaves(tree) if np.ndim(x)}
    if len(counts) != 1 or not all(map(np.ndim, jax.tree.leaves(tree))) or 0 in counts:
        shapes = jax.tree.map(np.shape, tree)
        raise ValueError(
            f"{part}={shapes} must be arrays with equally many rows, one for each "
            "example, and at least one"
        )
    return counts.pop()

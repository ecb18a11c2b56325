"""A task from arrays of rows: batches, metrics and the split follow from them."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from relaxjax.tasks._require import require_takes
from relaxjax.tasks._task import Data, Task, describe, shuffled

_BATCH_SIZE = 128
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
    batch_size: int | None = None,
    learning_rate: float = 1e-3,
    optimizer: Callable[[optax.Schedule], optax.GradientTransformation] | None = None,
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
      batch_size: default number of rows of a step, over all workers; None: 128, or all
        rows of `train` if they are fewer.
      learning_rate: default peak of the learning rate.
      optimizer: `optimizer(learning_rate)` makes the optimizer from a schedule; None:
        AdamW, or what a relaxation is made for.
      name: the task's name.
      data: identity of the data; None: that of all arrays together.

    Raises:
      ValueError: arrays of one part have different numbers of rows, or none, or are not
        numbers; a batch has more rows than `train`; `loss` or `metric` takes others
        than these arguments.

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
    between = () if state is None else ("state",)
    require_takes("of_arrays: loss", loss, ("params", *between, "batch"))
    require_takes("of_arrays: metric", metric, ("params", *between, "rows"))
    count = _rows("train", train)
    train = jax.tree.map(np.asarray, train)
    parts = {"train": train, "test": test, "validation": validation}
    for part in ("test", "validation"):
        if part == "test" or parts[part] is not None:
            _rows(part, parts[part])
    rows_of_a_step = _batch_size(batch_size, count)
    compiled = jax.jit(metric)

    def batches(seed: int, rows: int) -> Iterator[Any]:
        for picked in shuffled(seed, count, rows):
            yield _picked(train, picked)

    def on(rows: Any) -> Callable[..., jax.Array]:
        arrays = jax.tree.map(jnp.asarray, rows)
        return lambda *model: compiled(*model, arrays)

    task = Task(
        name=name,
        metric_name=metric_name,
        data=data or _identity(parts),
        params=params,
        loss=loss,
        metric=on(test),
        batches=batches,
        steps=steps,
        batch_size=rows_of_a_step,
        learning_rate=learning_rate,
        optimizer=optimizer,
        better=better,
        state=state,
        validation=None if validation is None else on(validation),
        held_out=test,
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
            steps=steps, batch_size=min(rows_of_a_step, count - cut), name=name,
            learning_rate=learning_rate, optimizer=optimizer, data=task.data,
        )  # fmt: skip
        note = f"{cut} of {count} training rows, drawn once with a fixed seed"
        return replace(whole, split_note=note)

    return task if validation is not None else replace(task, split=split)


def _identity(tree: Any) -> Data:
    return describe(np.ascontiguousarray(x).tobytes() for x in jax.tree.leaves(tree))


def _picked(tree: Any, rows: np.ndarray) -> Any:
    return jax.tree.map(lambda x: np.asarray(x)[rows], tree)


def _batch_size(rows: int | None, count: int) -> int:
    if rows is None:
        return min(_BATCH_SIZE, count)
    if not 1 <= rows <= count:
        raise ValueError(
            f"batch_size={rows} must be from 1 to the {count} rows of train: write "
            f"`batch_size={min(_BATCH_SIZE, count)}`"
        )
    return rows


def _rows(part: str, tree: Any) -> int:
    """The number of rows of all arrays of a part."""
    leaves = list(map(np.asarray, jax.tree.leaves(tree)))
    shapes = jax.tree.map(np.shape, tree)
    if not leaves or any(x.ndim and not len(x) for x in leaves):
        raise ValueError(
            f"{part}={shapes} has no rows: give arrays with a row for each example, as "
            f"in `{part}={{'x': x_{part}, 'y': y_{part}}}` (scikit-learn's "
            "train_test_split makes both parts)"
        )
    counts = {len(x) if x.ndim else None for x in leaves}
    if len(counts) > 1 or None in counts:
        raise ValueError(
            f"{part}={shapes} must be arrays with equally many rows, one for each "
            f"example: cut them alike, as in `{part}={{'x': x[:n], 'y': y[:n]}}`"
        )
    kinds = {str(x.dtype) for x in leaves if x.dtype.kind in "OSU"}
    if kinds:
        raise ValueError(
            f"{part} has an array of {kinds.pop()}, and must have numbers: number the "
            "classes, as in `_, y = np.unique(y, return_inverse=True)`"
        )
    return len(leaves[0])

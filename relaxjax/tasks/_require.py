"""What a task must be before it can be trained, found out by shapes alone.

Each message names the place, what is wrong, the rule, and the line to write.
"""

import inspect
import math
import traceback
from collections.abc import Callable
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from relaxjax.tasks._task import Task, schedule

LINE = (
    "return relaxjax.tasks.of_arrays(params=..., loss=..., metric=..., train=..., "
    "test=...)"
)
_ROWS = 2


def require(path: Path, name: str, task: Any) -> None:
    """Refuses what cannot be trained.

    Args:
      path: the file that the task is from.
      name: the name of the function that made it.
      task: what that function returned.

    Raises:
      ValueError: it is not a task; its params, state, batches, loss or metrics do not
        fit together.
    """
    where = f"{path}: {name}(seed)"
    if not isinstance(task, Task):
        kind = "nothing" if task is None else f"a value of type {type(task).__name__}"
        raise ValueError(
            f"{where} returns {kind}, and must return a relaxjax.tasks.Task: end it "
            f"with `{LINE}`"
        )
    _require_numbers(where, task)
    _require_floats(where, task.params)
    model = (task.params,) if task.state is None else (task.params, task.state)
    batch = _tried(path, f"{where}: batches(seed, rows)", lambda: _batch(task))
    _require_rows(where, batch)
    _require_loss(path, where, task, model, batch)
    _require_optimizer(path, where, task)
    for what in ("metric", "validation"):
        metric = getattr(task, what)
        if metric is not None:
            _require_metric(path, f"{where}: {what}", metric, model)


def require_takes(what: str, function: Any, args: tuple[str, ...]) -> None:
    """Refuses a function that cannot be called with these arguments, by position.

    Raises:
      ValueError: it takes others.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a function that does not say
        return
    try:
        signature.bind(*args)
    except TypeError as error:
        name = getattr(function, "__name__", "f")
        name = name if name.isidentifier() else what.rpartition(" ")[2]
        raise ValueError(
            f"{what} takes {signature} ({error}), and is called with "
            f"({', '.join(args)}): write `def {name}({', '.join(args)}):`"
        ) from error


def place(path: Path, error: BaseException) -> str:
    """The file, with the line of it that an error comes from if there is one."""
    here = path.resolve()
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).resolve() == here
    ]
    return f"{path}:{lines[-1]}" if lines else str(path)


def said(error: BaseException) -> str:
    """The kind of an error, and the first line of its message."""
    first, *_ = [*str(error).splitlines(), ""]
    return f"{type(error).__name__}: {first}"


def _tried(path: Path, what: str, run: Callable[[], Any]) -> Any:
    try:
        return run()
    except (Exception, SystemExit) as error:  # whatever the user's code raises
        raise ValueError(
            f"{what} cannot be computed; {place(path, error)} raised {said(error)}"
        ) from error


def _require_optimizer(path: Path, where: str, task: Task) -> None:
    if task.optimizer is None:
        return
    what = f"{where}: optimizer(learning_rate)"
    make, rate = task.optimizer, schedule(task.learning_rate, task.steps)
    made = _tried(path, what, lambda: make(rate))
    if not isinstance(made, optax.GradientTransformation):
        raise ValueError(
            f"{what} returns a value of type {type(made).__name__}, and must return an "
            "optax transformation: `optimizer=lambda rate: optax.sgd(rate, 0.9)`"
        )


def _require_numbers(where: str, task: Task) -> None:
    for what in ("steps", "batch_size"):
        number = getattr(task, what)
        if not (isinstance(number, Integral) and int(number) >= 1):
            raise ValueError(
                f"{where}: {what}={number!r} must be a whole number, 1 or more: write "
                f"`{what}=100`"
            )
    rate = task.learning_rate
    if not (isinstance(rate, Real) and 0 < float(rate) < math.inf):
        raise ValueError(
            f"{where}: learning_rate={rate!r} must be a number, more than 0 and "
            "finite: write `learning_rate=1e-3`"
        )


def _batch(task: Task) -> Any:
    batches = iter(task.batches(0, _ROWS))
    try:
        return next(batches)
    except StopIteration:
        raise ValueError("there is no batch; `while True: yield ...`") from None


def _require_rows(where: str, batch: Any) -> None:
    leaves = jax.tree.leaves(batch)
    if not leaves or any(np.shape(x)[:1] != (_ROWS,) for x in leaves):
        raise ValueError(
            f"{where}: batches(seed, rows={_ROWS}) yields arrays of the shapes "
            f"{jax.tree.map(np.shape, batch)}, and each must have {_ROWS} rows, one "
            "for each example: `yield {'x': x[picked], 'y': y[picked]}`"
        )


def _require_floats(where: str, params: Any) -> None:
    leaves = jax.tree_util.tree_leaves_with_path(params)
    if not leaves:
        raise ValueError(
            f"{where}: params={params!r} has no arrays, so that there is nothing to "
            "train: give the model's, as in `params={'w': jnp.zeros(3)}`"
        )
    for where_in, leaf in leaves:
        leaf_name = f"{where}: params{jax.tree_util.keystr(where_in)}"
        try:
            dtype = jnp.result_type(leaf)
        except TypeError:
            raise ValueError(
                f"{leaf_name} is a value of type {type(leaf).__name__}, and all params "
                "must be arrays of floats: keep the rest out, as in `params, rest = "
                "equinox.partition(model, equinox.is_inexact_array)`"
            ) from None
        if not jnp.issubdtype(dtype, jnp.floating):
            raise ValueError(
                f"{leaf_name} has dtype {dtype}, which has no gradient, and all params "
                "must be arrays of floats: give counts, keys and the like as "
                "`state=...`, or convert it, as in `jnp.float32(x)`"
            )


def _require_loss(
    path: Path, where: str, task: Task, model: tuple[Any, ...], batch: Any
) -> None:
    args = (*("params", "state")[: len(model)], "batch")
    require_takes(f"{where}: loss", task.loss, args)
    what = f"{where}: loss({', '.join(args)})"
    loss = _tried(path, what, lambda: jax.eval_shape(task.loss, *model, batch))
    if task.state is not None:
        loss = _without_state(where, task.state, loss)
    _require_number(what, loss)
    if not jnp.issubdtype(loss.dtype, jnp.floating):
        raise ValueError(
            f"{what} has dtype {loss.dtype}, which has no gradient: it must be a "
            "float, as `jnp.mean(...)` of floats is"
        )


def _without_state(where: str, state: Any, found: Any) -> Any:
    if not (isinstance(found, tuple) and len(found) == 2):
        raise ValueError(
            f"{where} has a state=, and its loss(params, state, batch) does not return "
            "two values, the loss and the new state: end it with `return loss, state`"
        )
    loss, after = found
    if jax.tree.structure(after) != jax.tree.structure(state):
        raise ValueError(
            f"{where}: the state that its loss returns is another tree than state=: "
            f"{jax.tree.map(jnp.shape, after)}, not {jax.tree.map(jnp.shape, state)}; "
            "end it with `return loss, state`, the new state in the old one's place"
        )
    named = jax.tree_util.tree_leaves_with_path(state)
    for (key, old), new in zip(named, jax.tree.leaves(after), strict=True):
        if _kind(old) != _kind(new):
            raise ValueError(
                f"{where}: state{jax.tree_util.keystr(key)} is {_kind(old)}, and "
                f"{_kind(new)} after its loss: a state keeps its shapes and dtypes, as "
                "in `new.astype(old.dtype)`"
            )
    return loss


def _kind(x: Any) -> str:
    return f"{getattr(x, 'dtype', jnp.result_type(x))}{list(np.shape(x))}"


def _require_metric(path: Path, what: str, metric: Any, model: tuple[Any, ...]) -> None:
    args = ("params", "state")[: len(model)]
    require_takes(what, metric, args)
    found = _tried(path, what, lambda: jax.eval_shape(metric, *model))
    _require_number(what, found)


def _require_number(what: str, value: Any) -> None:
    if isinstance(value, tuple):
        raise ValueError(
            f"{what} returns {len(value)} values, and must return a single number: "
            "`return loss`; what a loss changes beside it is given as `state=...`"
        )
    shape = getattr(value, "shape", None)
    if shape != ():
        kind = f"a value of type {type(value).__name__}" if shape is None else shape
        raise ValueError(
            f"{what} has the shape {kind}, and must be a single number: end it with "
            "`return jnp.mean(...)`"
        )

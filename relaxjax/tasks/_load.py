"""A task from a user's own file, checked before anything is trained.

my_task.py          its function `task(seed)` returns a `relaxjax.tasks.Task`
my_task.py:other    its function `other(seed)`
"""

import hashlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from relaxjax.tasks._task import Task

_LINE = (
    "return relaxjax.tasks.of_arrays(params=..., loss=..., metric=..., train=..., "
    "test=...)"
)


def load(source: str) -> tuple[Callable[[int], Task], str]:
    """The function of a task file, and the SHA-256 of the file.

    Args:
      source: `FILE.py` or `FILE.py:NAME`; the name is `task` if there is none.

    Raises:
      ValueError: there is no such file or function, the file does not run, or what it
        makes is not a task that can be trained; the message names the file, the rule
        and the line to add.
    """
    text, _, name = source.partition(".py:")
    path = Path(text + ".py" if name else text)
    name = name or "task"
    make = _function(path, name)

    def checked(seed: int) -> Task:
        try:
            task = make(seed)
        except Exception as error:
            kind = type(error).__name__
            raise ValueError(
                f"{path}: {name}({seed}) raised {kind}: {error}"
            ) from error
        _check(path, name, task)
        return task

    return checked, hashlib.sha256(path.read_bytes()).hexdigest()


def _function(path: Path, name: str) -> Callable[[int], Any]:
    if not path.is_file():
        raise ValueError(
            f"{path}: there is no such file; `relaxjax compare --skeleton {path.name}` "
            "writes one to begin with"
        )
    spec = importlib.util.spec_from_file_location(f"_task_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise ValueError(f"{path}:{error.lineno} is not Python: {error.msg}") from error
    except Exception as error:
        raise ValueError(
            f"{path} cannot be run: {type(error).__name__}: {error}"
        ) from error
    finally:
        sys.path.pop(0)
    function = getattr(module, name, None)
    if not callable(function):
        own = [
            k
            for k, v in vars(module).items()
            if getattr(v, "__module__", None) == module.__name__ and callable(v)
        ]
        raise ValueError(
            f"{path} has no function {name!r} (it has {', '.join(own) or 'none'}): add "
            f"`def {name}(seed): ...`, or name another with {path}:NAME"
        )
    return function


def _check(path: Path, name: str, task: Any) -> None:
    """Refuses what cannot be trained, by shapes alone."""
    where = f"{path}: {name}(seed)"
    if not isinstance(task, Task):
        raise ValueError(
            f"{where} returns {type(task).__name__}, and must return a "
            f"relaxjax.tasks.Task: {_LINE}"
        )
    leaves = jax.tree.leaves(task.params)
    if not any(jnp.issubdtype(jnp.result_type(x), jnp.floating) for x in leaves):
        raise ValueError(
            f"{where}: params={jax.tree.map(jnp.shape, task.params)} has no array of "
            "floats, so that there is nothing to train: give the model's params"
        )
    batch = _tried(f"{where}: its batches", lambda: next(task.batches(0, 2)))
    model = [task.params] if task.state is None else [task.params, task.state]
    args = "params, batch" if task.state is None else "params, state, batch"
    loss = _tried(
        f"{where}: loss({args})", lambda: jax.eval_shape(task.loss, *model, batch)
    )
    if task.state is not None:
        if not (isinstance(loss, tuple) and len(loss) == 2):
            raise ValueError(
                f"{where}: a task with state= needs loss(params, state, batch) that "
                "ends with `return loss, state`"
            )
        if _kinds(loss[1]) != _kinds(task.state):
            raise ValueError(
                f"{where}: the state that loss returns has other arrays, shapes or "
                "dtypes than state=: return the new state of the same kind"
            )
        loss = loss[0]
    _require_scalar(f"{where}: loss({args})", loss)
    for what in ("metric", "validation"):
        metric = getattr(task, what)
        if metric is not None:
            shape = _tried(
                f"{where}: {what}", lambda m=metric: jax.eval_shape(m, *model)
            )
            _require_scalar(f"{where}: {what}", shape)


def _kinds(tree: Any) -> Any:
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(jnp.shape(x), jnp.result_type(x)) for x in leaves]


def _tried(what: str, run: Callable[[], Any]) -> Any:
    try:
        return run()
    except Exception as error:
        raise ValueError(
            f"{what} cannot be computed: {type(error).__name__}: "
            f"{str(error).splitlines()[0] if str(error) else ''}"
        ) from error


def _require_scalar(what: str, value: Any) -> None:
    if getattr(value, "shape", None) != ():
        raise ValueError(
            f"{what} has the shape {getattr(value, 'shape', type(value).__name__)} and "
            "must be a single number: end it with jnp.mean(...)"
        )

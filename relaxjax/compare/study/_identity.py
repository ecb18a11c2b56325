"""What makes two runs the same run: starts, digests of programs, of arrays, of names.

A program is the text of its trace, without addresses, and the arrays in it. So a model
that a task file imports from elsewhere counts, and so does a number in a user's own
transformation, though neither has a name in the study.
"""

import hashlib
from collections.abc import Callable
from typing import Any

import jax
import optax
from jax.sharding import Mesh

from relaxjax._core.traced._digests import arrays_of, bytes_of, text_of
from relaxjax.tasks import Task, train_step_of
from relaxjax.workers import Emulation, data_parallel, emulate, init, to_workers


def record_of(task: Task, source: str, digest: str) -> dict[str, Any]:
    """What `study.json` says of a task, and of the file that it is from."""
    return {
        "name": task.name,
        "metric_name": task.metric_name,
        "better": task.better,
        "data": {"bytes": task.data.bytes, "sha256": task.data.sha256},
        "file": source,
        "file_sha256": digest,
        "split_note": task.split_note,
        "params": sum(x.size for x in jax.tree.leaves(task.params)),
    }


def program_digest(function: Callable[..., Any], *args: Any) -> str:
    """A digest of what a function computes for arguments of these shapes."""
    found = jax.make_jaxpr(function)(*args)
    digest = hashlib.sha256(text_of(found.jaxpr).encode())
    for array in arrays_of(found):
        digest.update(bytes_of(array))
    return digest.hexdigest()


def task_digest(task: Task, rows: int) -> str:
    """A digest of a task: its programs, its start, and the first batch of a seed."""
    model = (task.params,) if task.state is None else (task.params, task.state)
    batch = next(task.batches(0, rows))
    digest = hashlib.sha256(program_digest(task.loss, *model, batch).encode())
    for metric in (task.metric, task.validation):
        if metric is not None:
            digest.update(_metric_digest(metric, model).encode())
    for leaf in jax.tree.leaves((model, batch)):
        digest.update(bytes_of(leaf))
    return digest.hexdigest()


def own_optimizer(task: Task) -> dict[str, str]:
    """A digest of the task's own optimizer, if it has one, at a rate of one."""
    if task.optimizer is None:
        return {}
    tx = task.optimizer(optax.constant_schedule(1.0))

    def both(params: Any) -> Any:
        return tx.update(params, tx.init(params), params)

    return {"optimizer": program_digest(both, task.params)}


def start(tx: Any, task: Task, mesh: Mesh | Emulation) -> list[Any]:
    """The params, the optimizer's state, and the model's own state if it has one."""
    own = [] if task.state is None else [to_workers(task.state, mesh)]
    return [*init(tx, task.params, mesh), *own]


def step_digest(tx: Any, task: Task, workers: int, rows: int) -> str:
    """A digest of a transformation, by the train step that it is a part of."""
    mesh = emulate(workers)
    state = start(tx, task, mesh)
    step = data_parallel(train_step_of(task, tx), mesh)
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(state):
        digest.update(bytes_of(leaf))
    batch = next(task.batches(0, rows))
    digest.update(program_digest(step, *state, batch).encode())
    return digest.hexdigest()


def name_of(task: Any) -> str:
    """What a task is called: itself, or the name of the function that makes it."""
    return task if isinstance(task, str) else getattr(task, "__qualname__", "own task")


def _metric_digest(metric: Callable[..., Any], model: tuple[Any, ...]) -> str:
    """A metric that is not a JAX function is known by its name."""
    try:
        return program_digest(metric, *model)
    except (jax.errors.JAXTypeError, TypeError):
        return name_of(metric)

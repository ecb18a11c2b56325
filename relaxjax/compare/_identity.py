"""What makes two runs the same run: digests of programs, of arrays, of names.

A program is the text of its trace, without addresses, and the arrays in it. So a model
that a task file imports from elsewhere counts, and so does a number in a user's own
transformation, though neither has a name in the study.
"""

import hashlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from relaxjax._core._jaxprs import Program, programs_of
from relaxjax.tasks import Task, train_step_of
from relaxjax.workers import data_parallel, emulate, init, to_workers

_ADDRESS = re.compile(r"0x[0-9a-f]+")


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
    digest = hashlib.sha256(_ADDRESS.sub("", str(found.jaxpr)).encode())
    for array in _arrays(found):
        digest.update(_bytes(array))
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
        digest.update(_bytes(leaf))
    return digest.hexdigest()


def step_digest(tx: Any, task: Task, workers: int, rows: int) -> str:
    """A digest of a transformation, by the train step that it is a part of."""
    mesh = emulate(workers)
    state = list(init(tx, task.params, mesh))
    if task.state is not None:
        state.append(to_workers(task.state, mesh))
    step = data_parallel(train_step_of(task, tx), mesh)
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(state):
        digest.update(_bytes(leaf))
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


def _arrays(program: Program) -> Iterator[Any]:
    """The arrays in a program and in those inside it."""
    yield from program.consts
    for eqn in program.jaxpr.eqns:
        for inner in programs_of(eqn.params):
            yield from _arrays(inner)


def _bytes(leaf: Any) -> bytes:
    if jnp.issubdtype(jnp.result_type(leaf), jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    array = np.asarray(leaf)
    return str((array.shape, array.dtype)).encode() + array.tobytes()

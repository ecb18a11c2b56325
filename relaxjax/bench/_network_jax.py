"""relaxjax as a system of the network bench: one process, one device, one worker.

Run as `python -m relaxjax.bench._network_jax FILE PROCESS PROCESSES ADDRESS`.
"""

from typing import Any

import jax
import numpy as np
import optax
from jax.sharding import Mesh

from relaxjax._data_parallel import data_parallel
from relaxjax._init import init
from relaxjax._relaxation import Training as Told
from relaxjax._relaxations import parse
from relaxjax._stacked import to_workers
from relaxjax.bench import _network_worker as worker
from relaxjax.bench._network_problem import Problem, task
from relaxjax.tasks import Task

AXIS = "data"
ALONE = "alone"


def transformation(
    method: dict[str, Any], workers: int
) -> optax.GradientTransformationExtraArgs:
    """The method's own transformation around Adam.

    Args:
      method: name, options and rate; the name "alone" is Adam without communication.
      workers: how many.
    """
    adam = optax.adam(method["rate"])
    if method["name"] == ALONE:
        return optax.with_extra_args_support(adam)
    told = Told(adam, method["rate"], method["steps"], workers)
    return parse(method["name"]).build(AXIS, told, **method["options"])


def begin(method: dict[str, Any], own: Task, mesh: Mesh) -> worker.Training:
    """The method's training, from the task's start.

    Each process reads the loss of its own rows: no system of the bench sends losses.

    Args:
      method: as of `transformation`.
      own: the task.
      mesh: of all processes' devices.
    """
    tx = transformation(method, mesh.size)

    def train_step(params, opt_state, loss, batch):
        loss, grads = jax.value_and_grad(own.loss)(params, batch)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss, ()

    step = data_parallel(train_step, mesh, donate=True)
    state = [*init(tx, own.params, mesh), to_workers(np.float32(0), mesh)]

    def advance(rows: np.ndarray) -> float:
        *state[:], _ = step(*state, rows)
        jax.block_until_ready(state)
        return float(_own(state[2]))

    judge = jax.jit(own.loss)

    def judged(windows: np.ndarray) -> float:
        return float(judge(jax.tree.map(_own, state[0]), windows))

    return worker.Training(advance, judged)


def _own(x: jax.Array) -> jax.Array:
    """This process's part, without the worker axis."""
    return x.addressable_shards[0].data[0]


def make(place: worker.Place, problem: Problem) -> worker.Begin:
    """Joins the other processes.

    Args:
      place: which process this is.
      problem: which it compares with its own.

    Raises:
      ValueError: the task begins elsewhere here.
    """
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(place.address, place.processes, place.process)
    mesh = Mesh(jax.devices(), AXIS)
    own = task(*problem.size())
    return lambda method: begin(method, own, mesh)


if __name__ == "__main__":
    worker.main(make)

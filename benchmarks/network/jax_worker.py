"""relaxjax as a system of the network bench: a worker for each device of a process.

Run as `python -m benchmarks.network.jax_worker FILE PROCESS PROCESSES ADDRESS`.
"""

import json
import warnings
from typing import Any

import jax
import numpy as np
import optax
from jax.sharding import Mesh

from benchmarks.network import jax_inside, jax_sharded, worker
from benchmarks.network.methods import ALONE
from benchmarks.network.problem import Problem, task
from benchmarks.network.variants import unfused, wait_for_all
from relaxjax import data_parallel, init, plan, to_workers
from relaxjax._core._axis import AxisName
from relaxjax._core._relaxation import Training
from relaxjax._names import parse
from relaxjax.tasks import Task

AXIS = "data"
TWO_AXES = ("host", "device")


def transformation(
    method: dict[str, Any], workers: int, axis_name: AxisName = AXIS
) -> optax.GradientTransformationExtraArgs:
    """The method's own transformation around Adam.

    Args:
      method: name, options and rate; the name "alone" is Adam without communication.
      workers: number of workers; over two axes, of hosts.
      axis_name: axis of the workers.
    """
    adam = optax.adam(method["rate"])
    if method["name"] == ALONE:
        return optax.with_extra_args_support(adam)
    training = Training(adam, method["rate"], method["steps"], workers)

    def build(name: str) -> optax.GradientTransformationExtraArgs:
        return parse(name).build(axis_name, training, **method["options"])

    if method.get("without") == "fusion":
        return unfused(build, method["name"])
    if method.get("without") == "overlap":
        return optax.chain(wait_for_all(), build(method["name"]))
    return build(method["name"])


def mesh_of(method: dict[str, Any]) -> Mesh:
    """All devices: over two axes where a host has several, unless without hierarchy."""
    devices, per_host = jax.devices(), jax.local_device_count()
    if per_host == 1 or method.get("without") == "hierarchy":
        return Mesh(devices, AXIS)
    return Mesh(np.asarray(devices).reshape(-1, per_host), TWO_AXES)


Programs = dict[str, tuple[optax.GradientTransformationExtraArgs, Any]]
"""Transformations and steps by method, each compiled once in a process."""


def begin(
    method: dict[str, Any], task: Task, mesh: Mesh, programs: Programs | None = None
) -> worker.Session:
    """The method's training, from the task's start.

    Each process reads the loss of its own rows: no system of the bench sends losses.
    """
    programs = {} if programs is None else programs
    tx, _ = _program(method, task, mesh, programs)
    alone = method["name"] == "alone"  # on purpose: nothing is to warn of it
    if alone:
        warnings.filterwarnings("ignore", "data_parallel: the step trains")
    run = init(tx, task.params, mesh, reduced_in_step=alone)
    return _training(method, run, task, mesh, programs)


def _training(
    method: dict[str, Any],
    run: tuple[Any, Any],
    task: Task,
    mesh: Mesh,
    programs: Programs,
) -> worker.Session:
    """A training from here on."""
    _, step = _program(method, task, mesh, programs)
    state = [*run, to_workers(np.float32(0), mesh)]

    def advance(rows: np.ndarray) -> float:
        *state[:], _ = step(*state, rows)
        jax.block_until_ready(state)
        return float(_own(state[2]))

    judge = jax.jit(task.loss)

    def judged(windows: np.ndarray) -> float:
        return float(judge(jax.tree.map(_own, state[0]), windows))

    def taken_over(other: dict[str, Any]) -> worker.Session:
        tx, _ = _program(other, task, mesh, programs)
        adam, (params, opt_state, _) = optax.adam(other["rate"]), state
        on = plan.taken_over(tx, adam, params, opt_state, mesh)
        return _training(other, on, task, mesh, programs)

    return worker.Session(advance, judged, taken_over)


def _program(
    method: dict[str, Any], task: Task, mesh: Mesh, programs: Programs
) -> tuple[optax.GradientTransformationExtraArgs, Any]:
    key = json.dumps(method, sort_keys=True)
    if key not in programs:
        tx = transformation(method, mesh.devices.shape[0], _axes(mesh))
        if method.get("arrears"):
            tx = plan.with_arrears(tx)

        def train_step(params, opt_state, loss, batch):
            loss, grads = jax.value_and_grad(task.loss)(params, batch)
            updates, opt_state = tx.update(grads, opt_state, params)
            return optax.apply_updates(params, updates), opt_state, loss, ()

        programs[key] = tx, data_parallel(train_step, mesh, donate=True)
    return programs[key]


def _axes(mesh: Mesh) -> AxisName:
    return AXIS if mesh.devices.ndim == 1 else TWO_AXES


def _own(x: jax.Array) -> jax.Array:
    """The first worker's part of this process, without the worker axis."""
    return x.addressable_shards[0].data[0]


def make(place: worker.WorkerPlace, problem: Problem) -> worker.Begin:
    """Joins the other processes."""
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(place.address, place.processes, place.process)
    start, programs = task(*problem.size()), Programs()

    def begun(method: dict[str, Any]) -> worker.Session:
        if method["name"] in jax_sharded.NAMES:
            mesh = jax_sharded.mesh_of(jax.devices(), jax.local_device_count())
            return jax_sharded.begin(method, start, mesh)
        if method["name"] in jax_inside.NAMES:
            return jax_inside.begin(method, problem, jax.devices())
        return begin(method, start, mesh_of(method), programs)

    return begun


if __name__ == "__main__":
    worker.main(make)

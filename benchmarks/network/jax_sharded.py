"""Sharded training in the network bench: `relaxjax.fsdp`, and plain `jit`.

Names of methods:

jit_fsdp   jax.jit with NamedSharding; the compiler gathers and scatters
fsdp       relaxjax.fsdp.gathered, of the bits that the options say
sdp4bit    relaxjax.fsdp.sdp4bit, each host an island of its devices
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from benchmarks.network import worker
from relaxjax import compression, data_parallel, fsdp, to_workers
from relaxjax.tasks import Task

AXES = ("host", "device")


def begin(method: dict[str, Any], task: Task, mesh: Mesh) -> worker.Session:
    """The sharded training of one of `NAMES`, from the task's start.

    Args:
      method: name, options and rate.
      task: the task.
      mesh: all devices, [host, device].
    """
    return NAMES[method["name"]](method, task, mesh)


def mesh_of(devices: Sequence[Any], per_host: int) -> Mesh:
    """A mesh of these devices, so many of each host."""
    return Mesh(np.asarray(devices).reshape(-1, per_host), AXES)


def _loss(method: dict[str, Any], task: Task) -> fsdp.Gathered:
    """The task's loss of shards, with the method's codes."""
    if method["name"] == "sdp4bit":
        return fsdp.gathered(task.loss, AXES, **fsdp.sdp4bit(AXES))
    options = method["options"]
    codes: dict[str, Any] = {"difference": options.get("difference", False)}
    if "weights" in options:
        codes["weights"] = compression.quantize(options["weights"], block_size=2048)
    if "gradients" in options:
        codes["gradients"] = compression.quantize(options["gradients"])
    return fsdp.gathered(task.loss, AXES, **codes)


def _coded(method: dict[str, Any], task: Task, mesh: Mesh) -> worker.Session:
    tx = optax.adam(method["rate"])
    loss = _loss(method, task)
    shards, opt_state = fsdp.init(tx, task.params, mesh)
    owed, nothing = fsdp.init_state(loss, shards, mesh), to_workers(np.float32(0), mesh)

    def value_of(shards, owed, rows):
        return loss(shards, rows, state=owed)

    def train_step(shards, opt_state, owed, _, rows):
        both = jax.value_and_grad(value_of, argnums=(0, 1))
        value, (grads, owed) = both(shards, owed, rows)
        updates, opt_state = tx.update(grads, opt_state, shards)
        return optax.apply_updates(shards, updates), opt_state, owed, value, ()

    def judge_step(shards, owed, _, rows):
        return shards, owed, value_of(shards, owed, rows), ()

    step = data_parallel(train_step, mesh, donate=True)
    judge = data_parallel(judge_step, mesh)
    state = [shards, opt_state, owed, nothing]

    def advance(rows: np.ndarray) -> float:
        *state[:], _ = step(*state, rows)
        jax.block_until_ready(state)
        return _own(state[3])

    def judged(windows: np.ndarray) -> float:
        return _own(judge(state[0], state[2], nothing, windows)[2])

    return worker.Session(advance, judged)


def _stock(method: dict[str, Any], task: Task, mesh: Mesh) -> worker.Session:
    tx, rows_of = optax.adam(method["rate"]), NamedSharding(mesh, P(AXES))

    def placed(x: jax.Array) -> NamedSharding:
        """Cut along the first dimension that divides, as annotations would."""
        whole = [i for i, size in enumerate(x.shape) if size % mesh.size == 0]
        return NamedSharding(mesh, P(*[None] * whole[0], AXES) if whole else P())

    def first() -> tuple[Any, Any]:
        return task.params, tx.init(task.params)

    def train_step(params, opt_state, rows):
        loss, grads = jax.value_and_grad(task.loss)(params, rows)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    places = jax.tree.map(placed, jax.eval_shape(first))
    state = list(jax.jit(first, out_shardings=places)())
    outs = (*places, NamedSharding(mesh, P()))
    step = jax.jit(train_step, out_shardings=outs, donate_argnums=(0, 1))
    judge = jax.jit(task.loss)

    def together(rows: np.ndarray) -> jax.Array:
        return jax.make_array_from_process_local_data(rows_of, rows)

    def advance(rows: np.ndarray) -> float:
        *state[:], loss = step(*state, together(rows))
        jax.block_until_ready(state)
        return float(loss)

    return worker.Session(advance, lambda x: float(judge(state[0], together(x))))


def _own(x: jax.Array) -> float:
    """The value of this process's first worker."""
    return float(x.addressable_shards[0].data.ravel()[0])


NAMES: dict[str, Callable[[dict[str, Any], Task, Mesh], worker.Session]] = {
    "jit_fsdp": _stock,
    "fsdp": _coded,
    "sdp4bit": _coded,
}
"""What begins a training, by the method's name."""

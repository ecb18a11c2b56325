"""Train steps whose overlap is compared, as programs for GPUs.

    pmean      jax.shard_map with replicated state and a hand-written lax.pmean
    jit        jax.jit with NamedSharding: the compiler inserts the all-reduce
    flags      pmean, with XLA's own flags against merging everything into one
    relaxjax   all_reduce in buckets, in a given order, after the backward pass
    reduced    any reducer, as those in codes
    inside     the same reducer in the backward pass, as the model has it
    gossip     combine_then_adapt or gossip on a ring, after each worker's own step

Each takes the same plain step of gradient descent and returns HLO text.
"""

from typing import Any

import jax
import optax
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from benchmarks.programs.ahead_of_time import compiled_text, shapes, state_shapes
from benchmarks.programs.overlap_models import Gradient, Workload
from relaxjax import all_reduce, data_parallel, delay, topology


def relaxjax_text(training: Workload, mesh: Mesh, **knobs: Any) -> str:
    """`relaxjax.all_reduce` with these knobs, in `data_parallel`."""
    return reduced_text(training, mesh, all_reduce("data", **knobs))


def reduced_text(
    training: Workload, mesh: Mesh, reducer: optax.GradientTransformation
) -> str:
    """Any reducer, such as one in codes, after the backward pass."""
    return optax_text(training, mesh, optax.chain(reducer, optax.sgd(0.1)))


def inside_text(
    training: Workload, mesh: Mesh, way: str, options: Any = None, **knobs: Any
) -> str:
    """The program whose backward pass reduces: `way` is one of `training.inside`."""
    gradient = training.inside[way](all_reduce("data", **knobs))
    return optax_text(training, mesh, optax.sgd(0.1), gradient, options)


def gossip_text(training: Workload, mesh: Mesh, method: Any, **knobs: Any) -> str:
    """A decentralized `method` on a ring of the devices."""
    ring = topology.ring(mesh.size)
    tx = optax.chain(optax.sgd(0.1), method("data", ring, **knobs))
    return optax_text(training, mesh, tx)


def delay_text(training: Workload, mesh: Mesh, **knobs: Any) -> str:
    """An all-reduce of the gradients of the step before."""
    tx = optax.chain(delay(1), all_reduce("data", **knobs), optax.sgd(0.1))
    return optax_text(training, mesh, tx)


def optax_text(
    training: Workload,
    mesh: Mesh,
    tx: optax.GradientTransformation,
    gradient: Gradient | None = None,
    options: Any = None,
) -> str:
    """Any transformation of the model's own gradient, or of another one."""
    gradient = gradient or training.gradient

    def step(params, opt_state, batch):
        loss, grads = gradient(params, batch)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, {"loss": loss}

    state = state_shapes(tx, training.params, mesh.size)
    batch = _whole(training.batch, mesh.size)
    return compiled_text(data_parallel(step, mesh), *state, batch, options=options)


def pmean_text(training: Workload, mesh: Mesh, options: Any = None) -> str:
    """A hand-written `lax.pmean` in a `shard_map`."""

    def step(params, batch):
        loss, grads = training.gradient(params, batch)
        loss, grads = lax.pmean((loss, grads), "data")
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), loss

    mapped = jax.shard_map(
        step, mesh=mesh, in_specs=(P(), P("data")), out_specs=P(), check_vma=False
    )
    return compiled_text(jax.jit(mapped), *_placed(training, mesh), options=options)


def jit_text(training: Workload, mesh: Mesh) -> str:
    """`jax.jit` over the whole batch, with sharded arguments."""

    def step(params, batch):
        loss, grads = training.gradient(params, batch)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), loss

    jitted = jax.jit(step, out_shardings=NamedSharding(mesh, P()))
    return compiled_text(jitted, *_placed(training, mesh))


def _placed(training: Workload, mesh: Mesh) -> tuple[Any, Any]:
    def put(tree, spec):
        sharding = NamedSharding(mesh, spec)
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree
        )

    batch = _whole(training.batch, mesh.size)
    return put(shapes(training.params), P()), put(batch, P("data"))


def _whole(batch: Any, workers: int) -> Any:
    """The shapes of the batch of all workers together."""
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct((workers * x.shape[0], *x.shape[1:]), x.dtype),
        batch,
    )

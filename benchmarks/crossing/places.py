"""Where an optimizer can stand: eight programs as users write them.

Each takes a row and returns the models of all workers after each step. Warnings and
errors of relaxjax come out as they are.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax import lax
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import relaxjax
from benchmarks.crossing.hands import Hand, Models, arguments
from benchmarks.crossing.inventory import Row
from benchmarks.crossing.task import EVERY, WORKERS, Batch, batches, loss_fn, start
from relaxjax import all_reduce, diloco, fsdp, local_sgd, parameter_server, power_sgd

AXIS = "data"
OUTER = {"learning_rate": 0.7, "momentum": 0.9, "nesterov": True}


def low_rank() -> Any:
    """The reducer of the column `power_sgd`."""
    return power_sgd(AXIS, rank=2, min_compression=0)


def _mean(tree: Any) -> Any:
    return lax.pmean(tree, AXIS)


def _all_value(loss: Callable[[Any], jax.Array]) -> Callable[[Any], jax.Array]:
    """The loss of all workers, with the gradient of all."""
    reducer = all_reduce(AXIS)
    return lambda p: _mean(loss(relaxjax.reduce_in_backward(p, reducer)))


def _workers_models(row: Row, params: Any) -> list[Any]:
    host = jax.tree.map(np.asarray, params)
    return [row.model(jax.tree.map(lambda x, i=i: x[i], host)) for i in range(WORKERS)]


def data_parallel(
    wrapped: Callable[[Any], Any],
    row: Row,
    *,
    own: bool = False,
    init: Callable[..., Any] = relaxjax.init,
    gathered: Callable[..., Any] = lambda loss: loss,
    models: Callable[[Row, Any], list[Any]] = _workers_models,
) -> Models:
    """`relaxjax.data_parallel` of four emulated workers.

    With `own` the optimizer is given the worker's own loss, not that of all.
    """
    first, mesh = row.params(start()), relaxjax.emulate(WORKERS)
    tx = wrapped(row.make(first))
    whole_loss = gathered(loss_fn)

    def train_step(params: Any, state: Any, batch: Batch) -> Any:
        def loss(model: Any) -> jax.Array:
            return whole_loss(model, batch)

        value, grads = jax.value_and_grad(loss)(row.model(params))
        of_all = {} if own else {"mean": _mean, "value_fn": _all_value(loss)}
        given = arguments(row, loss, **of_all)(params, value, grads)
        updates, state = tx.update(grads, state, params, **given)
        return optax.apply_updates(params, updates), state, {}

    params, state = init(tx, first, mesh)
    step = relaxjax.data_parallel(train_step, mesh)
    seen = []
    for batch in batches():
        params, state, _ = step(params, state, batch)
        seen.append(models(row, params))
    return seen


def _gathered_models(row: Row, shards: Any) -> list[Any]:
    whole = jax.tree.map(np.asarray, fsdp.whole(shards))
    return [row.model(whole)] * WORKERS


class Module(nnx.Module):
    """The model as flax.nnx has it."""

    def __init__(self, params: Any):
        for name, value in params.items():
            setattr(self, name, nnx.Param(value))

    def values(self) -> Any:
        """The params as a dict of arrays."""
        return {name: getattr(self, name)[...] for name in start()}


def nnx_optimizer(row: Row) -> Models:
    """`nnx.Optimizer`, with model and optimizer as worker state."""
    mesh, model = relaxjax.emulate(WORKERS), Module(row.params(start()))
    params = nnx.state(model, nnx.Param)
    tx = optax.chain(all_reduce(AXIS), row.make(nnx.as_pure(params)))
    relaxjax.init(tx, params, mesh)
    optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)
    model = relaxjax.to_workers(model, mesh)
    optimizer = relaxjax.to_workers(optimizer, mesh, same=True)

    def train_step(model: Any, optimizer: Any, batch: Batch) -> Any:
        def loss(model: Any) -> jax.Array:
            return loss_fn(model.values(), batch)

        value, grads = nnx.value_and_grad(loss)(model)
        graph, params = nnx.split(model)

        def pure(p: Any) -> jax.Array:
            return loss(nnx.merge(graph, p))

        given = arguments(row, pure, _mean, _all_value(pure))(params, value, grads)
        optimizer.update(model, grads, **given)
        return model, optimizer, {}

    step = relaxjax.data_parallel(train_step, mesh)
    seen = []
    for batch in batches():
        model, optimizer, _ = step(model, optimizer, batch)
        seen.append(_workers_models(row, model.values()))
    return seen


def unreduced(row: Row) -> Models:
    """A plain `jax.jit` over four devices, with `relaxjax.unreduced`."""
    first = row.params(start())
    tx = optax.chain(all_reduce(AXIS), row.make(first))
    mesh = jax.make_mesh((WORKERS,), (AXIS,), axis_types=(AxisType.Explicit,))

    @jax.jit
    def train_step(params: Any, state: Any, batch: Batch) -> Any:
        def loss(model: Any) -> jax.Array:
            return _explicit_loss(model, batch)

        model = relaxjax.unreduced(row.model(params), AXIS)
        value, grads = jax.value_and_grad(loss)(model)
        of_all = grads
        if "grad" in row.arguments:
            of_all = jax.grad(loss)(row.model(params))  # jit reduces these itself
        given = arguments(row, loss)(params, value, of_all)
        updates, state = tx.update(grads, state, params, **given)
        return optax.apply_updates(params, updates), state

    seen = []
    with jax.set_mesh(mesh):
        params = jax.device_put(first, P())
        state = tx.init(params)
        for batch in batches():
            params, state = train_step(params, state, jax.device_put(batch, P(AXIS)))
            model = jax.tree.map(np.asarray, row.model(params))
            seen.append([model] * WORKERS)
    return seen


def _explicit_loss(params: Any, batch: Batch) -> jax.Array:
    """`loss_fn`, in which the bias says that it lies along the examples."""
    hidden = batch.x @ params["hidden"]
    along = jnp.broadcast_to(params["bias"], hidden.shape)
    hidden = jnp.tanh(hidden + jax.reshard(along, jax.typeof(hidden).sharding))
    return jnp.mean((hidden @ params["out"] - batch.y) ** 2)


def _behind(reducer: Callable[[], Any]) -> Callable[[Any], Any]:
    return lambda optimizer: optax.chain(reducer(), optimizer)


PLACES: dict[str, Callable[[Row], Models]] = {
    "all_reduce": partial(data_parallel, _behind(lambda: all_reduce(AXIS))),
    "power_sgd": partial(data_parallel, _behind(low_rank)),
    "local_sgd": partial(
        data_parallel, lambda opt: optax.chain(opt, local_sgd(AXIS, EVERY)), own=True
    ),
    "diloco": partial(
        data_parallel,
        lambda opt: diloco(opt, AXIS, EVERY, outer=optax.sgd(**OUTER)),
        own=True,
    ),
    "parameter_server": partial(data_parallel, lambda opt: parameter_server(opt, AXIS)),
    "fsdp": partial(
        data_parallel,
        lambda opt: opt,
        init=fsdp.init,
        gathered=lambda loss: fsdp.gathered(loss, AXIS),
        models=_gathered_models,
    ),
    "unreduced": unreduced,
    "nnx.Optimizer": nnx_optimizer,
}


NO_PROGRAM = {
    ("lookahead", "nnx.Optimizer"): "its params are pairs, and a module has one of each"
}
"""Cells that no program can have."""


def right(hand: Hand, place: str) -> Models:
    """The models that the place should have."""
    if place == "power_sgd":
        return hand.reduced(low_rank())
    if place == "local_sgd":
        return hand.local()
    if place == "diloco":
        return hand.local(optax.sgd(**OUTER))
    return hand.one_device()

"""The right value of each cell: the same training by hand, without `data_parallel`.

    one device   gradients of all rows, one optimizer
    reduced      gradients as a reducer alone makes them of the workers' own
    local        an optimizer for each worker, with keys of its own, and models that
                 meet every second step

No relaxation has a part in the first and the third; the second calls the reducer's
`update` under `jax.vmap`, and hands what comes out to one optimizer.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.crossing.inventory import Row
from benchmarks.crossing.task import (
    EVERY,
    WORKERS,
    Batch,
    batches,
    loss_fn,
    share,
    start,
)

Models = list[list[Any]]
"""Models of each worker after each step: [step][worker]."""


def arguments(
    row: Row,
    loss: Callable[[Any], jax.Array],
    mean: Callable[[Any], Any] = lambda x: x,
    value_fn: Callable[[Any], jax.Array] | None = None,
) -> Callable[[Any, jax.Array, Any], dict[str, Any]]:
    """What the row's `update` takes by name, from (params, value, gradients).

    `mean` makes the loss and the gradients those of all workers; `value_fn` is the loss
    of all workers, with gradients of all, if not `loss` itself.
    """
    whole = value_fn or loss
    made: dict[str, Callable[[Any, Any, Any], Any]] = {
        "value": lambda params, value, grads: mean(value),
        "grad": lambda params, value, grads: mean(grads),
        "value_fn": lambda params, value, grads: whole,
        "obj_fn": lambda params, value, grads: whole,
        "grad_fn": lambda params, value, grads: lambda p, _: mean(jax.grad(loss)(p)),
    }
    return lambda *now: {name: made[name](*now) for name in row.arguments}


def own_keys(state: Any, worker: int) -> Any:
    """The state, with the worker folded into its typed keys."""

    def own(x: Any) -> Any:
        is_key = jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
        return jax.random.fold_in(x, worker) if is_key else x

    return jax.tree.map(own, state)


class Hand:
    """One row's optimizer with a compiled step for any rows."""

    def __init__(self, row: Row):
        self.row, self.tx = row, row.make(row.params(start()))
        self.step = jax.jit(self._step)
        self.gradients = jax.jit(lambda p, b: jax.grad(loss_fn)(self.row.model(p), b))

    def _step(self, params: Any, state: Any, batch: Batch, grads: Any = None) -> Any:
        def loss(model: Any) -> jax.Array:
            return loss_fn(model, batch)

        value, own = jax.value_and_grad(loss)(self.row.model(params))
        given = arguments(self.row, loss)(params, value, own)
        grads = own if grads is None else grads
        updates, state = self.tx.update(grads, state, params, **given)
        return optax.apply_updates(params, updates), state

    def _start(self) -> tuple[Any, Any]:
        params = self.row.params(start())
        return params, self.tx.init(params)

    def _model(self, params: Any) -> Any:
        return jax.tree.map(np.asarray, self.row.model(params))

    def one_device(self) -> Models:
        """All rows, one optimizer."""
        params, state = self._start()
        models = []
        for batch in batches():
            params, state = self.step(params, state, batch)
            models.append([self._model(params)] * WORKERS)
        return models

    def reduced(self, reducer: Any) -> Models:
        """One optimizer, with what the reducer makes of the workers' gradients."""
        params, state = self._start()
        axis: Any = {"axis_name": "data", "axis_size": WORKERS}
        model = self.row.model(params)
        kept = jax.vmap(lambda _: reducer.init(model), **axis)(jnp.arange(WORKERS))
        reduce = jax.jit(jax.vmap(reducer.update, **axis))
        models = []
        for batch in batches():
            own = [self.gradients(params, share(batch, i)) for i in range(WORKERS)]
            out, kept = reduce(jax.tree.map(lambda *x: jnp.stack(x), *own), kept)
            grads = jax.tree.map(lambda x: x[0], out)
            params, state = self.step(params, state, batch, grads)
            models.append([self._model(params)] * WORKERS)
        return models

    def local(self, outer: Any = None) -> Models:
        """Each worker alone, and every second step the mean, or an outer step to it."""
        params, state = self._start()
        outer = outer or optax.sgd(1.0)
        anchor, kept = params, outer.init(params)
        workers = [(params, own_keys(state, i)) for i in range(WORKERS)]
        models = []
        for number, batch in enumerate(batches(), start=1):
            workers = [
                self.step(*worker, share(batch, i)) for i, worker in enumerate(workers)
            ]
            if number % EVERY == 0:
                mean = jax.tree.map(
                    lambda *x: sum(x) / WORKERS, *(p for p, _ in workers)
                )
                way = jax.tree.map(jnp.subtract, anchor, mean)
                updates, kept = outer.update(way, kept, anchor)
                anchor = optax.apply_updates(anchor, updates)
                workers = [(anchor, state) for _, state in workers]
            models.append([self._model(params) for params, _ in workers])
        return models

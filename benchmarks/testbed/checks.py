"""Checks before a process is started, and before a step.

Cost: one update of the optimizer, twice.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.testbed.graph import placed
from benchmarks.testbed.model import LayerModel
from relaxjax._core.foreign._fields import check_count


def owners(
    model: LayerModel,
    optimizer: Callable[[], optax.GradientTransformation] | None,
    workers: int,
    servers: int,
) -> dict[str, int]:
    """The index of the server of each leaf, if the fleet can be.

    Raises:
      TypeError: the optimizer is not a function.
      ValueError: there are more servers than leaves, no servers or no workers, or the
        optimizer looks at several leaves together.
    """
    check_count("workers", workers)
    check_count("servers", servers)
    if servers > len(model.leaves):
        raise ValueError(
            f"servers={servers}, but there are {len(model.leaves)} leaves, which are "
            f"not cut: take at most {len(model.leaves)} servers"
        )
    if optimizer is not None:
        if not callable(optimizer):
            raise TypeError(
                f"optimizer={optimizer!r} must be a function that makes one, as "
                "functools.partial(optax.sgd, 0.1): servers are processes"
            )
        check_leafwise(optimizer(), model.leaves)
    return placed(model, servers)


def check_leafwise(
    optimizer: optax.GradientTransformation, leaves: dict[str, np.ndarray]
) -> None:
    """Refuses an optimizer that does not treat each leaf by itself.

    One update of large random gradients is computed both ways and compared.

    Raises:
      ValueError: the two differ.
    """
    rng = np.random.default_rng(0)
    gradients = {
        name: jnp.asarray(1e3 * rng.standard_normal(leaf.shape), leaf.dtype)
        for name, leaf in leaves.items()
    }
    params = {name: jnp.asarray(leaf) for name, leaf in leaves.items()}
    whole: Any = optimizer.update(gradients, optimizer.init(params), params)[0]
    for name, leaf in params.items():
        own: Any = optimizer.update(gradients[name], optimizer.init(leaf), leaf)[0]
        if not np.allclose(own, whole[name], rtol=1e-3):
            raise ValueError(
                f"optimizer: the update of {name!r} alone differs from its update "
                "among all leaves; servers see only their own leaves, so that "
                "clip_by_global_norm, masks by name and the like cannot run there"
            )


def shares(batch: Any, workers: int) -> list[Any]:
    """Each worker's rows of a pytree of arrays, rows first.

    Raises:
      ValueError: the arrays differ in length, or the workers cannot share their rows.
    """
    leaves = jax.tree.leaves(batch)
    shapes = [np.shape(leaf) for leaf in leaves]
    rows = {shape[0] if shape else 0 for shape in shapes} or {workers}
    if len(rows) != 1 or 0 in rows or (count := rows.pop()) % workers:
        raise ValueError(
            f"{workers} workers need arrays with equally many rows, a multiple of "
            f"{workers}; got shapes {shapes}"
        )
    size = count // workers
    return [
        jax.tree.map(lambda x, i=i: np.asarray(x)[i * size : (i + 1) * size], batch)
        for i in range(workers)
    ]

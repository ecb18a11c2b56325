"""Models of importable functions, for processes; and plain training of the same."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks import testbed as host

ADAM = partial(optax.adamw, 0.03)


def dense(params: Any, x: jax.Array) -> jax.Array:
    return jnp.tanh(x @ params["w"] + params["b"])


def join(params: Any, a: jax.Array, b: jax.Array) -> jax.Array:
    return a * params + b


def double(params: Any, x: jax.Array) -> jax.Array:
    return 2 * x


def squared(output: jax.Array, targets: Any) -> jax.Array:
    return jnp.mean(jnp.sum((output - targets) ** 2, axis=1))


def towers() -> host.LayerModel:
    """stem -> (left, right -> more) -> join -> double -> head, 11 leaves."""
    rng = np.random.default_rng(0)

    def weights(n: int, m: int) -> dict[str, np.ndarray]:
        w, b = rng.standard_normal((n, m)) / 2, rng.standard_normal(m)
        return {"w": w.astype("f4"), "b": b.astype("f4")}

    return host.LayerModel(
        [
            host.Layer("stem", dense, weights(3, 5)),
            host.Layer("left", dense, weights(5, 4)),
            host.Layer("right", dense, weights(5, 6), ("stem",)),
            host.Layer("more", dense, weights(6, 4)),
            host.Layer("join", join, np.full(4, 0.5, "f4"), ("left", "more")),
            host.Layer("double", double),
            host.Layer("head", dense, weights(4, 2)),
        ],
        squared,
    )


def output(params: Any, inputs: Any) -> jax.Array:
    """Of `towers`, in one program."""
    stem, left, right, more, scale, _, head = params
    x = dense(stem, inputs)
    joined = join(scale, dense(left, x), dense(more, dense(right, x)))
    return dense(head, 2 * joined)


def batches(steps: int, rows: int = 8) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(1)
    return [
        (
            rng.standard_normal((rows, 3)).astype("f4"),
            rng.standard_normal((rows, 2)).astype("f4"),
        )
        for _ in range(steps)
    ]


def trained(model: host.LayerModel, steps: int, rows: int) -> tuple[list[float], Any]:
    """Losses and params of one process on the whole batch."""
    params: Any = [layer.params for layer in model.layers]
    tx = ADAM()
    state, losses = tx.init(params), []
    for inputs, targets in batches(steps, rows):
        loss, gradient = jax.value_and_grad(
            lambda p, x=inputs, y=targets: squared(output(p, x), y)
        )(params)
        updates, state = tx.update(gradient, state, params)
        params = optax.apply_updates(params, updates)
        losses.append(float(loss))
    return losses, params

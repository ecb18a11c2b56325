"""The testbed's model: blocks of three unlike towers, as of an Inception network.

    heavy    few bytes, many operations: one matrix applied again and again
    wide     many bytes, few operations: two large matrices
    deep     two layers between the two

A chain has one good order, its own; among unlike towers the order is a choice.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from relaxjax.ps.host import Layer, Model


def towers(*, width: int = 256, blocks: int = 2, reuse: int = 8) -> Model:
    """The model.

    Args:
        width: of every activation.
        blocks: of three towers each, one after the other.
        reuse: how often the "deep" layers apply their matrix; "heavy" 2.5 times as
            often.

    Returns:
        2 + 6 * blocks layers, of as many leaves.
    """
    rng = np.random.default_rng(0)

    def weights(n: int, m: int) -> np.ndarray:
        return (rng.standard_normal((n, m)) / np.sqrt(n)).astype(np.float32)

    square = partial(weights, width, width)
    deep = partial(applied, times=reuse)
    layers = [Layer("stem", partial(applied, times=1), square())]
    for b in range(blocks):
        before = (layers[-1].name,)
        layers += [
            Layer(
                f"heavy{b}", partial(applied, times=5 * reuse // 2), square(), before
            ),
            Layer(f"deep{b}a", deep, square(), before),
            Layer(f"deep{b}b", deep, square()),
            Layer(f"wide{b}a", dense, weights(width, 2 * width), before),
            Layer(f"wide{b}b", dense, weights(2 * width, width)),
            Layer(
                f"join{b}", joined, square(), (f"heavy{b}", f"deep{b}b", f"wide{b}b")
            ),
        ]
    return Model([*layers, Layer("head", dense, square())], squared)


def applied(w: jax.Array, x: jax.Array, *, times: int) -> jax.Array:
    """One matrix, several times, as a convolution uses its weights."""
    for _ in range(times):
        x = jnp.tanh(x @ w)
    return x


def dense(w: jax.Array, x: jax.Array) -> jax.Array:
    """A layer."""
    return jnp.tanh(x @ w)


def joined(w: jax.Array, *towers: jax.Array) -> jax.Array:
    """A layer over the sum of towers."""
    return dense(w, sum(towers[1:], towers[0]))


def squared(output: jax.Array, targets: Any) -> jax.Array:
    """Mean of squares."""
    return jnp.mean((output - targets) ** 2)

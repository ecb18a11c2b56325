"""The testbed's model: blocks of three unlike towers, as in an Inception network.

    heavy    few bytes, many operations: one matrix applied again and again
    wide     many bytes, few operations: two large matrices
    deep     two layers between the two

A chain has one good order, its own; among unlike towers the order is a choice.

Computation is either real, so that workers share the machine's cores, or *stated*: a
layer waits for as long as its matrix products would take an accelerator, and computes
next to nothing. Bytes are the same.
"""

import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.testbed import Layer, LayerModel

COMPUTE = ("real", "stated")
UNIT = 3.6e-3
"""Stated seconds of one product of a square matrix, forward."""


def towers(
    *, width: int = 256, blocks: int = 2, reuse: int = 8, compute: str = "real"
) -> LayerModel:
    """The model.

    Args:
      width: width of every activation.
      blocks: number of blocks of three towers each, one after the other.
      reuse: number of times that "deep" layers apply their matrix; "heavy" ones do it
        2.5 times as often.
      compute: "real" or "stated".

    Returns:
      2 + 6 * blocks layers, of as many leaves.
    """
    rng = np.random.default_rng(0)

    def weights(n: int, m: int) -> np.ndarray:
        return (rng.standard_normal((n, m)) / np.sqrt(n)).astype(np.float32)

    def layer(name: str, n: int, m: int, times: int, needs: Any = None) -> Layer:
        real = joined if isinstance(needs, tuple) and len(needs) > 1 else applied
        products = times * n * m / width**2
        apply = (
            partial(real, times=times)
            if compute == "real"
            else partial(waited, seconds=UNIT * products)
        )
        return Layer(name, apply, weights(n, m), needs)

    d = width
    layers = [layer("stem", d, d, 1)]
    for b in range(blocks):
        before = (layers[-1].name,)
        layers += [
            layer(f"heavy{b}", d, d, 5 * reuse // 2, before),
            layer(f"deep{b}a", d, d, reuse, before),
            layer(f"deep{b}b", d, d, reuse),
            layer(f"wide{b}a", d, 2 * d, 1, before),
            layer(f"wide{b}b", 2 * d, d, 1),
            layer(f"join{b}", d, d, 1, (f"heavy{b}", f"deep{b}b", f"wide{b}b")),
        ]
    return LayerModel([*layers, layer("head", d, d, 1)], squared)


def applied(w: jax.Array, x: jax.Array, *, times: int) -> jax.Array:
    """One matrix, applied several times, as a convolution applies its weights."""
    for _ in range(times):
        x = jnp.tanh(x @ w)
    return x


def joined(w: jax.Array, *towers: jax.Array, times: int) -> jax.Array:
    """A layer over the sum of towers."""
    return applied(w, sum(towers[1:], towers[0]), times=times)


def waited(w: jax.Array, *towers: jax.Array, seconds: float) -> jax.Array:
    """A layer that takes so long forward, and twice as long backward."""
    n, m = w.shape
    x = sum(towers[1:], towers[0])
    x = x[:, :m] if m < n else jnp.tile(x, (1, m // n))
    return _waited(seconds, w, x)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _waited(seconds: float, w: jax.Array, x: jax.Array) -> jax.Array:
    return _pause(seconds, x + w[0])


def _forward(seconds: float, w: jax.Array, x: jax.Array) -> tuple[jax.Array, Any]:
    return _waited(seconds, w, x), w


def _backward(seconds: float, w: jax.Array, slope: jax.Array) -> Any:
    slope = _pause(2 * seconds, slope)
    return jnp.zeros_like(w).at[0].set(slope.sum(axis=0)), slope


_waited.defvjp(_forward, _backward)


def _pause(seconds: float, x: jax.Array) -> jax.Array:
    zero = jax.ShapeDtypeStruct((), x.dtype)
    return x + jax.pure_callback(partial(_sleep, seconds), zero, x[0, 0])


def _sleep(seconds: float, value: Any) -> np.ndarray:
    time.sleep(seconds)
    return np.zeros_like(value)


def squared(output: jax.Array, targets: Any) -> jax.Array:
    """Mean of squares."""
    return jnp.mean((output - targets) ** 2)

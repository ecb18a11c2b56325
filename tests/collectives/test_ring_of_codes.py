"""What a ring that encodes anew at each hop loses, beside two shots: EQuARX's exchange.

The step of a block's code is its largest magnitude over 127; rounding to nearest loses
step / sqrt(12) of it in the root of the mean square. With S_k the sum of k workers,

    ring        sum_k step(S_k)^2, k = 1 .. n, over n^2
    two shots   (n - 1) step(S_1)^2 / n^2 + step(S_n / n)^2

over 12. With n the first grows beside the second, and its root as sqrt(n) does. (In two
shots a worker's own share of its own chunk is not encoded.)
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from relaxjax import all_reduce, compression

BLOCK, LEVELS = 128, 127
SIZE = BLOCK * 16 * 4  # chunks of whole blocks, for up to 16 workers


def gradients(n: int, kind: str = "normal") -> np.ndarray:
    rng = np.random.default_rng(n)
    g = rng.normal(size=(n, SIZE))
    if kind == "one in each block":
        g = np.where(np.arange(SIZE) % BLOCK == 5, g, 0)
    if kind == "opposite":
        g = g[0] * (-1.0) ** np.arange(n)[:, None]
    if kind == "heavy":
        g = rng.standard_cauchy((n, SIZE))
    return g.astype(np.float32)


def lost(g: np.ndarray, algorithm: str, **how: Any) -> np.ndarray:
    """What comes out, less the exact mean; equal on all workers."""
    code = compression.quantize(8, block_size=BLOCK, **how)
    tx = all_reduce("data", algorithm=algorithm, compressor=code)
    update = jax.jit(jax.vmap(lambda x: tx.update(x, tx.init(x))[0], axis_name="data"))
    out = np.asarray(update(jnp.asarray(g)), np.float64)
    np.testing.assert_array_equal(out, out[:1].repeat(len(g), 0))
    return out[0] - g.astype(np.float64).mean(0)


def steps(x: np.ndarray) -> np.ndarray:
    """[blocks]: the step of each block's code."""
    return np.abs(x.astype(np.float64).reshape(-1, BLOCK)).max(axis=1) / LEVELS


def by_law(g: np.ndarray, algorithm: str) -> float:
    """The root of the mean square of what is lost."""
    n = len(g)
    if algorithm == "ring":
        sums = np.cumsum(g, axis=0)
        squares = sum((steps(s) ** 2).mean() for s in sums) / n**2
    else:
        first = np.mean([(steps(x) ** 2).mean() for x in g])
        squares = first * (n - 1) / n**2 + (steps(g.mean(axis=0)) ** 2).mean()
    return float(np.sqrt(squares / 12))


@functools.cache
def seen(n: int, algorithm: str) -> float:
    return float(np.sqrt((lost(gradients(n), algorithm) ** 2).mean()))


@pytest.mark.few(2)
@pytest.mark.parametrize("algorithm", ["ring", "two_shot"])
@pytest.mark.parametrize("n", [2, 4, 8, 16])
def test_the_error_is_that_of_all_roundings(n, algorithm):
    assert seen(n, algorithm) == pytest.approx(by_law(gradients(n), algorithm), rel=0.1)


@pytest.mark.long
def test_a_ring_of_more_workers_loses_more_beside_two_shots():
    beside = [seen(n, "ring") / seen(n, "two_shot") for n in (4, 16)]
    assert beside[1] / beside[0] == pytest.approx(2, rel=0.2)


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", ["normal", "one in each block", "opposite", "heavy"])
@pytest.mark.parametrize("n", [2, 5, 8])
@pytest.mark.parametrize("stochastic_rounding", [False, True])
def test_no_element_loses_more_than_its_roundings(kind, n, stochastic_rounding):
    """Half a step each, or a whole one at random; a sum of k is k times the largest."""
    g = gradients(n, kind)
    step = np.abs(g).max() / LEVELS * sum(range(1, n + 1)) / n
    off = np.abs(lost(g, "ring", stochastic_rounding=stochastic_rounding))
    assert off.max() <= 1.05 * step * (1 if stochastic_rounding else 0.5)

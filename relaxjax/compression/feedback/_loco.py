"""LoCo: error feedback whose residual is a moving average, kept in eight bits.

Source: Xie, Lin, Toh, Zhou 2024 (LoCo). On each worker, from e = 0:

    h = g + e,   c = C(h),   out = mean of c over the workers
    e = (1 - beta) e + beta (h - c)
    e = s q / 127 with q = round(127 e / s) and s the largest |e| of the leaf
    e = 0 every T steps                               (`reset_every`)

e is an average of what was lost; what is owed is e / beta. Rounding e to eight bits
takes away r, |r| <= s / 254, and between two resets,

    sum of out + mean of e / beta + mean of the sum of r / beta = sum of the mean of g

so that nothing else is lost, for every beta. Each reset drops the e / beta that is owed
then, where `error_feedback` never drops anything.

Cost of the state: one byte per element and 8 bytes per leaf, while a residual in
float32 takes 4 bytes per element.

Learning rate: see `error_feedback`. In DeepSpeed, `err_beta` is 1 - beta.
"""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from relaxjax._core._checks import require_fraction, require_whole
from relaxjax._core._extremes import largest
from relaxjax._core._merge_rules import EQUAL, Leaf, Merge, rebuild
from relaxjax._core._tree import wide
from relaxjax.compression._protocol import Compressor, Feedback, with_feedback
from relaxjax.compression._scaling import over

_LEVELS = 127


def _merged_codes(leaf: Leaf, merge: Merge) -> np.ndarray:
    """Codes of the merged residual; their rounding error is lost, as in each step."""
    rows = _merged_residual(leaf, merge)
    most = _beside(rows, _largest(rows, leaf.beside("largest")))
    whole = np.rint(rows / np.where(most > 0, most, 1) * _LEVELS)
    return whole.astype(leaf.rows.dtype)  # floats where a gradient carries them


def _merged_scale(leaf: Leaf, merge: Merge) -> np.ndarray:
    return _largest(_merged_residual(leaf.beside("codes"), merge), leaf)


def _merged_residual(leaf: Leaf, merge: Merge) -> np.ndarray:
    codes = leaf.rows.astype(np.float32)
    scale = leaf.beside("largest").rows / _LEVELS
    return merge(leaf, codes * _beside(codes, scale))


def _largest(rows: np.ndarray, like: Leaf) -> np.ndarray:
    """The largest of each worker, or of each layer that it has."""
    axes = tuple(range(like.rows.ndim, rows.ndim))
    return np.max(np.abs(rows), axis=axes, initial=0)


def _beside(rows: np.ndarray, scales: np.ndarray) -> np.ndarray:
    return scales.reshape(*scales.shape, *[1] * (rows.ndim - scales.ndim))


class LoCoState(NamedTuple):
    """State of one leaf.

    Attributes:
      codes: q, int8, like the leaf.
      largest: s, float32[].
      age: int32[], number of steps since the last reset; 0 without resets.
    """

    codes: Annotated[jax.Array, rebuild(_merged_codes)]
    largest: Annotated[jax.Array, rebuild(_merged_scale)]
    age: Annotated[jax.Array, EQUAL]


def loco(
    compressor: Compressor, *, beta: float = 0.2, reset_every: int | None = 512
) -> Compressor:
    """Wraps a compressor: like `error_feedback`, in a quarter of the memory.

    Args:
      compressor: a contraction, or unbiased (then it is divided by 1 + omega); the
        paper's is `quantize(4)`.
      beta: weight of the new loss in the average, in (0, 1]; 1 is `error_feedback` but
        for the eight bits.
      reset_every: number of steps after which the residual is dropped; None: never.

    Returns:
      The compressor with feedback.

    Raises:
      ValueError: `beta` is not in (0, 1]; `reset_every` is below 1; the compressor has
        feedback already, or is neither a contraction nor unbiased.

    Example:
      >>> from relaxjax import compression
      >>> compression.loco(compression.quantize(4)).feedback.name
      'loco'
    """
    require_fraction("loco", "beta", beta)
    if reset_every is not None:
        require_whole("loco", "reset_every", reset_every)

    def init(x):
        codes = jnp.zeros_like(x, dtype=jnp.int8)
        return LoCoState(codes, jnp.zeros((), jnp.float32), jnp.zeros((), jnp.int32))

    def before(g, state):
        return g.astype(wide(g.dtype)) + _residual(state)

    def after(g, c, mean, state):
        e = _residual(state)
        return mean, aged((1 - beta) * e + beta * (before(g, state) - c), e, state)

    def absent(c, mean, state):
        e = _residual(state)
        return mean, aged(e - beta * c, e, state)

    def aged(e, old, state):
        """The next state; where `e` is not finite, the old one."""
        e = jnp.where(jnp.isfinite(e), e, old)
        if reset_every is None:
            return _coded(e, state.age)
        drop = state.age + 1 >= reset_every
        age = jnp.where(drop, 0, state.age + 1)
        return _coded(jnp.where(drop, 0, e), age)

    return with_feedback(compressor, Feedback("loco", init, before, after, absent))


def _coded(e: jax.Array, age: jax.Array) -> LoCoState:
    """`e` in eight bits."""
    most = largest(e)
    codes = jnp.rint(over(e, most) * _LEVELS).astype(jnp.int8)
    return LoCoState(codes, most.astype(jnp.float32), age)


def _residual(state: LoCoState) -> jax.Array:
    """e, from its codes and their scale."""
    return state.codes.astype(jnp.float32) * (state.largest / _LEVELS)

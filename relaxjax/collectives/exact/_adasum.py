"""Adasum: a sum that counts what two workers have in common once, instead of twice.

Source: Maleki et al., "Scaling distributed training with adaptive summation", 2020.

For two vectors a and b

    A(a, b) = (1 - a.b / 2 |a|^2) a + (1 - a.b / 2 |b|^2) b

which is a + b if they are orthogonal and a if they are equal. It is symmetric but not
associative, so the tree is fixed: that of `tree_all_reduce`. With n workers:

    up, for D = 1, 2, 4 .. < n:      x_i <- A(x_i, x_{i+D})   (2 D divides i, i + D < n)
    down, for the same D backwards:  x_{i+D} <- x_i

Written as (a - half the projection of a on b) + (b - half the projection of b on a),
no part is longer than a or b, and with a = s u, where s is the power of two for which
2 <= max|u| < 4, the dot products of the u neither overflow nor vanish:

    half the projection of b on a = (u_a . u_b / 2 |u_a|^2) s_b u_a

Cost: like the tree, 2 ceil(log2 n) rounds, and ceil(log2 n) d itemsize bytes at the
busiest worker. The paper halves the vectors at every level, which sends about 2 d, and
then has to sum the dot products of the parts.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from relaxjax._core._axis import AxisName, axis_size
from relaxjax._core._extremes import largest
from relaxjax._core._tree import wide
from relaxjax.collectives.exact._tree import one_tree, tree_wire_bytes
from relaxjax.collectives.wire._messages import for_each_axis


def adasum(x: jax.Array, axis_name: AxisName) -> jax.Array:
    """Combines one tensor of every worker of an axis by Adasum.

    Call it once per tensor: the coefficients belong to the whole of `x`. All workers
    receive the same bits. 16-bit floats travel as 16 bits; products and sums are
    float32 or wider, rounded once per combination, so ceil(log2 n) times. Complex
    numbers count as vectors of twice as many reals. A zero `x` changes nothing; a NaN
    or infinity anywhere makes all of the result NaN. Under `check_vma=True` a sum of
    the root's bits and of zeros takes the place of the way down:
    2 (n - 1) ceil(d / n) itemsize bytes.

    Args:
      x: a floating or complex array of any shape, the same on all workers; it may be
        0-d or empty.
      axis_name: the axis; of a tuple (outer, inner), the inner one is combined first.

    Returns:
      The combination, with the shape and dtype of `x`; for one worker, `x` itself.

    Raises:
      ValueError: `x` is neither floating nor complex.
      NameError: outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from relaxjax.collectives import adasum
      >>> x = jnp.array([[1.0, 0.0], [1.0, 1.0]])  # a row for each of two workers
      >>> print(jax.vmap(lambda x: adasum(x, "data"), axis_name="data")(x))
      [[1.25 0.75]
       [1.25 0.75]]
    """
    if not jnp.issubdtype(x.dtype, jnp.inexact):
        raise ValueError(
            f"adasum: x is {x.dtype}, and must be floating or complex: coefficients "
            "are fractions. Convert it to float32 first"
        )
    axis_size(axis_name, "adasum")
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        return lax.complex(*adasum(jnp.stack([x.real, x.imag]), axis_name))
    return for_each_axis(x, axis_name, "adasum", partial(one_tree, add=_combine))


def adasum_wire_bytes(x: jax.Array | jax.ShapeDtypeStruct, axis_size: int) -> int:
    """Bytes that the busiest worker sends in one `adasum` of an array like `x`.

    Args:
      x: an array or `jax.ShapeDtypeStruct`.
      axis_size: number of workers n.

    Returns:
      ceil(log2 n) d itemsize.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from relaxjax.collectives import adasum_wire_bytes
      >>> adasum_wire_bytes(jax.ShapeDtypeStruct((10,), jnp.float32), 5)
      120
    """
    return tree_wire_bytes(x, axis_size)


def _combine(a: jax.Array, b: jax.Array) -> jax.Array:
    """A(a, b), computed in float32 or wider and rounded once to the dtype of `a`."""
    dtype = a.dtype
    a, b = a.astype(wide(dtype)), b.astype(wide(dtype))
    scale_a, unit_a = _scaled(a)
    scale_b, unit_b = _scaled(b)
    dot = jnp.sum(unit_a * unit_b)
    b_on_a = _half_ratio(dot, jnp.sum(unit_a**2)) * scale_b * unit_a
    a_on_b = _half_ratio(dot, jnp.sum(unit_b**2)) * scale_a * unit_b
    return ((a - a_on_b) + (b - b_on_a)).astype(dtype)


def _scaled(a: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A power of two s and u = a / s with 2 <= max|u| < 4; (1, a) if a counts as zero.

    An array at the very end of the range counts as zero: s and 1 / s must not vanish,
    which is also why u is not smaller.
    """
    most = largest(a)
    counts = most >= 4 * jnp.finfo(a.dtype).tiny
    mantissa, _ = jnp.frexp(jnp.where(counts, most, 1))
    scale = jnp.where(counts, most / (4 * mantissa), 1)
    return scale, a / scale


def _half_ratio(dot: jax.Array, squares: jax.Array) -> jax.Array:
    """Half of dot / squares; 0 for a zero vector, so that its coefficient is 1."""
    return 0.5 * dot / jnp.where(squares > 0, squares, 1)

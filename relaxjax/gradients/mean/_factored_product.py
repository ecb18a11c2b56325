"""Factored product: a dense layer whose gradient travels as factors, if these are less.

Source: Xie et al. 2016 (sufficient factor broadcasting); chosen layer by layer by the
bytes, Zhang et al. 2017 (Poseidon).

    y_i = x_i w                              x_i [b, r], w [r, c]
    G   = (1 / n) sum_i x_i^T v_i            v_i [b, c]: the gradient of y_i

Worker i has x_i and v_i, b (r + c) numbers, which say all that the r c of x_i^T v_i do.
Everybody sends them to everybody and takes the sum of products itself: no residual, no
rounding but that of sums in another order, and the same bits on all workers.

Cost, in bytes that a worker sends for each itemsize:

    factors       (n - 1) b (r + c)
    all-reduce    2 (n - 1) ceil(r c / n)       the product instead, where that is less

and 2 (n - 1) b r c floating-point operations more for each worker. Factors are less
where n b < 2 r c / (r + c): few workers, few rows each, and large matrices.
"""

from typing import Any

import jax
import jax.numpy as jnp

from relaxjax._core._axis import AxisName, axis_size, like_varying
from relaxjax._core._tree import dtype_and_shape, wide
from relaxjax._core._weights import factor
from relaxjax.collectives import gather_all
from relaxjax.gradients.mean._all_reduce import all_reduce

_CALLER = "factored_product"


def factored_product(
    x: jax.Array, w: jax.Array, axis_name: AxisName, *, weight: Any = None
) -> jax.Array:
    """`x @ w`; the gradient of `w` comes out as its mean over the workers.

    Factors are sent, or their product where this is fewer bytes, inside the backward
    pass. Wrap other params in `relaxjax.reduce_in_backward`; the optimizer then follows
    without a reducer: `relaxjax.init(tx, params, mesh, reduced_in_step=True)`.

    Args:
      x: [..., r], floating: this worker's activations.
      w: [r, c], floating: equal on all workers.
      axis_name: the axis, or a tuple of axes.
      weight: this worker's number of examples, a scalar, for a mean over examples; with
        zero, whatever `x` holds does not matter.

    Returns:
      [..., c], the product; `x` has its own gradient.

    Raises:
      ValueError: shapes that do not fit, or arrays that are not floating.
      NameError: outside the axis, in the backward pass.

    Example:
      >>> import jax, jax.numpy as jnp, relaxjax
      >>> def loss(w, x):
      ...     return relaxjax.factored_product(x, w, "data").mean()
      >>> x = jnp.array([[[1.0, 2.0]], [[3.0, 6.0]]])  # a row for each of two workers
      >>> gradient = jax.vmap(jax.grad(loss), (None, 0), axis_name="data")
      >>> print(gradient(jnp.zeros((2, 1)), x)[0].T)
      [[2. 4.]]
    """
    _check(x, w)
    examples = None if weight is None else jnp.asarray(weight, jnp.float32)

    @jax.custom_vjp
    def product(x, w, examples):
        del examples
        return x @ w

    def forward(x, w, examples):
        return x @ w, (x, w, examples)

    def backward(residuals, v):
        x, w, examples = residuals
        rows, values = x.reshape(-1, x.shape[-1]), v.reshape(-1, v.shape[-1])
        sends = _mean_by_factors if are_factors_less(rows, w, axis_name) else _mean
        mean = sends(rows, values, axis_name, examples).astype(w.dtype)
        nothing = None if examples is None else jnp.zeros_like(examples)
        return (v @ w.T).astype(x.dtype), like_varying(mean, w), nothing

    product.defvjp(forward, backward)
    return product(x, w, examples)


def factored_product_wire_bytes(
    x: jax.Array | jax.ShapeDtypeStruct, w: jax.Array | jax.ShapeDtypeStruct, n: int
) -> int:
    """Bytes that each of n workers sends for the gradient of `w`, without weights.

    Args:
      x: an array or `jax.ShapeDtypeStruct`, a worker's activations [..., r].
      w: the same, [r, c].
      n: number of workers.

    Example:
      >>> import jax, jax.numpy as jnp, relaxjax
      >>> x, w = (jax.ShapeDtypeStruct(s, jnp.float32) for s in ((8, 512), (512, 512)))
      >>> relaxjax.factored_product_wire_bytes(x, w, 4), 4 * 2 * 3 * 512 * 512 // 4
      (98304, 1572864)
    """
    return min(_bytes(x, w, n))


def are_factors_less(x: jax.Array, w: jax.Array, axis_name: AxisName) -> bool:
    """Whether factors are fewer bytes than the product's all-reduce."""
    factors, product = _bytes(x, w, axis_size(axis_name, _CALLER))
    return factors < product


def _bytes(x: Any, w: Any, n: int) -> tuple[int, int]:
    """Bytes of the factors, and those of the product."""
    rows, (r, c) = x.size // max(w.shape[0], 1), w.shape
    value = jnp.result_type(x.dtype, w.dtype).itemsize
    factors = (n - 1) * rows * (r * x.dtype.itemsize + c * value)
    return factors, 2 * (n - 1) * -(-r * c // n) * w.dtype.itemsize


def _mean_by_factors(
    x: jax.Array, v: jax.Array, axis_name: AxisName, examples: Any
) -> jax.Array:
    """From everybody's factors; rows of workers that count for nothing are zeros."""
    whole = [gather_all(a, axis_name) for a in (x, v)]
    x, v = (a.astype(wide(a.dtype)) for a in whole)
    if examples is not None:
        count = gather_all(factor(examples, axis_name, "mean"), axis_name)
        count = count[:, None, None].astype(v.dtype)
        x, v = jnp.where(count == 0, 0, x), jnp.where(count == 0, 0, count * v)
    return jnp.einsum("ibr,ibc->rc", x, v) / x.shape[0]


def _mean(x: jax.Array, v: jax.Array, axis_name: AxisName, examples: Any) -> jax.Array:
    """The mean of products, by an all-reduce."""
    reducer, product = all_reduce(axis_name), x.T @ v
    mean: Any = reducer.update(product, reducer.init(product), weight=examples)[0]
    return mean


def _check(x: jax.Array, w: jax.Array) -> None:
    fit = w.ndim == 2 and x.ndim >= 1 and x.shape[-1:] == w.shape[:1]
    floats = all(jnp.issubdtype(a.dtype, jnp.floating) for a in (x, w))
    if not (fit and floats):
        raise ValueError(
            f"{_CALLER}: x is {dtype_and_shape(x)} and w is {dtype_and_shape(w)}; they "
            "must be floating, [..., r] and [r, c]: reshape w of more axes to a matrix"
        )

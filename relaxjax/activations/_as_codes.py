"""Gathers and all-to-alls that hand on what has travelled, for your own products.

    all_gather_codes   (C(x_0), .., C(x_{n-1}))
    all_to_all_codes   (C(x_0[i]), .., C(x_{n-1}[i]))

Scaled products of eight and four bits read codes and scales themselves, and nothing is
decoded for them. What arrives are integers, which have no gradient: put the product
and these calls into a `jax.custom_vjp` of your own.

Cost: that of `all_gather` and `all_to_all` in the forward pass.
"""

from typing import Any

import jax
from jax import lax

from relaxjax._core._axis import to_local
from relaxjax.activations._rows import Code
from relaxjax.activations._two_ways import code_of, parts_of, ways
from relaxjax.collectives import distribute
from relaxjax.compression import Compressor


def all_gather_codes(
    x: jax.Array, axis_name: str, code: Compressor, *, key: Any = None
) -> Any:
    """Every worker's `x` in codes, stacked.

    Experimental: this may change in any release.

    Args:
      x: float[..., h] of this worker; blocks of codes run along the last dimension.
      axis_name: the axis.
      code: a compressor without feedback.
      key: for random compressors, equal on all workers: a seed or a `jax.random` key.

    Returns:
      The compressor's payload with leaves [n, ..., b]; of `compression.mx`, `codes` are
      uint8[n, ..., h bits / 8] and `scale` uint8[n, ..., ceil(h / 32)].

    Raises:
      TypeError: `code` is not a compressor; `axis_name` is not one axis.
      ValueError: feedback; a random compressor without a key; `x` is not real floats.
      NameError: outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from relaxjax import activations, compression
      >>> gather = lambda x: activations.all_gather_codes(
      ...     x, "model", compression.mx("e4m3"))
      >>> payload = jax.vmap(gather, axis_name="model")(jnp.ones((2, 8, 64)))
      >>> payload.codes.shape, payload.scale.shape
      ((2, 2, 8, 64), (2, 2, 8, 2))
    """
    made = _code("all_gather_codes", x, axis_name, code, key)
    x = to_local(x, axis_name)
    bits = lax.all_gather(made.encode(x[None], axis_name)[0], axis_name)
    return _shaped(made, bits, (len(bits), *x.shape))


def all_to_all_codes(
    x: jax.Array,
    axis_name: str,
    code: Compressor,
    *,
    split_axis: int = 0,
    tiled: bool = False,
    key: Any = None,
) -> Any:
    """What all workers have for this one in codes, stacked by sender.

    Experimental: this may change in any release.

    Args:
      x: float[..., h]; blocks of codes run along the last dimension, within a part.
      axis_name: the axis.
      code: a compressor without feedback.
      split_axis: the dimension of `x` that is shared out: n long; tiled, a multiple.
      tiled: whether `split_axis` is cut, or taken away.
      key: for random compressors, equal on all workers: a seed or a `jax.random` key.

    Returns:
      The compressor's payload with leaves [n, ..., b], by sender.

    Raises:
      TypeError: `code` is not a compressor; `axis_name` is not one axis.
      ValueError: `split_axis` cannot be shared out; feedback; a random compressor
        without a key; `x` is not real floats.
      NameError: outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from relaxjax import activations, compression
      >>> dispatch = lambda x: activations.all_to_all_codes(
      ...     x, "expert", compression.nvfp4())
      >>> payload = jax.vmap(dispatch, axis_name="expert")(jnp.ones((2, 2, 8, 64)))
      >>> payload.codes.shape, payload.scale.shape, payload.most.shape
      ((2, 2, 8, 32), (2, 2, 8, 4), (2, 2, 8, 1))
    """
    made = _code("all_to_all_codes", x, axis_name, code, key)
    n, x = lax.axis_size(axis_name), to_local(x, axis_name)
    parts = parts_of("all_to_all_codes", x, n, split_axis, tiled)
    bits = distribute(made.encode(parts, axis_name), axis_name)
    return _shaped(made, bits, parts.shape)


def _code(caller: str, x: Any, axis_name: str, code: Compressor, key: Any) -> Code:
    if code is None:
        raise TypeError(
            f"{caller}: code=None is not a Compressor; without one, use jax.lax"
        )
    words = ways(caller, x, axis_name, code, None, key).words
    made = code_of(code, words, 1)
    assert made is not None
    return made


def _shaped(made: Code, bits: jax.Array, shape: tuple[int, ...]) -> Any:
    width = shape[-1] if len(shape) > 1 else 1
    payload = made.payloads(bits, width)
    return jax.tree.map(lambda x: x.reshape(*shape[:-1], *x.shape[2:]), payload)

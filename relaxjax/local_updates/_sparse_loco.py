"""SparseLoCo: DiLoCo that sends a few values of each chunk, in two bits.

Source: Sarfi et al. 2025. After each H-th step, with e the feedback of worker i, beta
its decay, and Q two bits of each kept value:

    p = beta e + (a - x_i)
    c = Q(top-k of each chunk of p),  e = p - c
    a = a - alpha mean_i(c),  x_i = a

The outer momentum of DiLoCo is left out: the feedback does its work. It is `diloco`
with this compressor.

Cost: of a chunk of 4096 elements 64 indices of 12 bits and 64 values of 2 bits, and a
float32 for 128 values: 114 bytes, n - 1 times in n workers' all-gather. At the defaults
and 8 workers that is 1/1078 of a float32 ring each step, for leaves of whole chunks.
State beside the inner optimizer's: the anchor a, and e.
"""

from typing import Any

import optax

from relaxjax._core._axis import AxisName
from relaxjax.compression import error_feedback, quantize, top_k
from relaxjax.local_updates._local_steps import local_steps
from relaxjax.local_updates._outer_step import outer_step


def sparse_loco(
    inner: optax.GradientTransformation,
    axis_name: AxisName,
    sync_every: int = 30,
    *,
    density: float = 64 / 4096,
    chunk_size: int = 4096,
    bits: int = 2,
    decay: float = 0.95,
    outer_learning_rate: float = 1.0,
    bucket_bytes: int = 8 * 2**20,
    specs: Any = None,
) -> optax.GradientTransformationExtraArgs:
    """An optimizer whose workers send little of how far they went, every few steps.

    Use it as the whole optimizer, without an all-reduce before it.

    Args:
      inner: each worker's optimizer, of its own gradients.
      axis_name: the axis, or a tuple (outer, inner).
      sync_every: H, number of steps from one outer step to the next, 1 or more.
      density: share of each chunk that is sent, in (0, 1].
      chunk_size: elements of a chunk; a smaller leaf is one.
      bits: of a sent value: 8, 4 or 2.
      decay: beta, of the feedback, in (0, 1].
      outer_learning_rate: alpha.
      bucket_bytes: as of `relaxjax.all_reduce`.
      specs: as of `relaxjax.all_reduce`.

    Returns:
      A gradient transformation, as of `relaxjax.diloco`.

    Raises:
      ValueError: a density, chunk size, number of bits or decay that the compressor
        refuses; else as of `relaxjax.diloco`.
      NameError: `update` outside the axis.

    Example:
      >>> import jax.numpy as jnp, optax, relaxjax
      >>> params = {"w": jnp.zeros((512, 512))}
      >>> mesh = relaxjax.emulate(8)
      >>> tx = relaxjax.sparse_loco(optax.adamw(4e-4), "data")
      >>> ring = relaxjax.wire_bytes(relaxjax.all_reduce("data"), params, mesh)
      >>> sent = relaxjax.wire_bytes(tx, params, mesh, steps=30)
      >>> print(f"1/{30 * ring / sent:.0f}")
      1/1078
    """
    few = top_k(density, block_size=chunk_size, values=quantize(bits))
    compressor = error_feedback(few, decay=decay)
    outer = optax.sgd(outer_learning_rate)
    step = outer_step(
        "sparse_loco", axis_name, outer, compressor, "auto", bucket_bytes, 0, specs
    )
    return optax.with_extra_args_support(
        optax.chain(inner, local_steps(sync_every, step))
    )

"""SparseLoCo: DiLoCo that sends a few values of each chunk, in two bits.

Source: Sarfi et al. 2025. After each H-th step, with e the feedback of worker i, beta
its decay, and Q two bits of each kept value:

    p = beta e + (a - x_i)
    c = Q(top-k of each chunk of p),  e = p - c
    a = a - alpha mean_i(c),  x_i = a

It is `diloco` with this compressor and outer SGD(alpha): DiLoCo's outer momentum is
left out, as the feedback does its work. The paper's chunks are parts of one tensor (64
x 64 of a matrix); here they are cut from buckets (`chunk_size`).

Cost: for a chunk of 4096 elements 64 indices of 12 bits and 64 values of 2 bits, and a
float32 for 128 values: 114 bytes, n - 1 times in n workers' all-gather. At the defaults
and 8 workers that is 1/1078 of a float32 ring each step, for buckets of whole chunks.
State beside the inner optimizer's: the anchor a, and e.
"""

from typing import Any

import optax

from relaxjax._core._axis import AxisName
from relaxjax._core._checks import require_transformation, require_whole
from relaxjax._core.traced._marks import whole_method
from relaxjax.compression import error_feedback, quantize, top_k
from relaxjax.local_updates.common._local_steps import ExchangeSpec, local_steps
from relaxjax.local_updates.periodic._diloco import outer_step
from relaxjax.periods import Period


def sparse_loco(
    inner: optax.GradientTransformation,
    axis_name: AxisName,
    sync_every: Period = 30,
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
      inner: each worker's optimizer, which sees its own gradients.
      axis_name: the axis, or a tuple (outer, inner).
      sync_every: H, the number of steps from one outer step to the next, 1 or more; or
        a schedule of `relaxjax.periods`, which is asked after each of them.
      density: the share of each chunk that is sent, in (0, 1].
      chunk_size: the number of elements of a chunk. Chunks are cut from a bucket of
        leaves that lie end to end: one may hold the end of a leaf and the start of
        the next, and a leaf that is small may send nothing for a while.
      bits: the width of a sent value: 8, 4 or 2.
      decay: beta, the decay of the feedback, in (0, 1].
      outer_learning_rate: alpha.
      bucket_bytes: see `relaxjax.all_reduce`.
      specs: see `relaxjax.all_reduce`.

    Returns:
      A gradient transformation, as in `relaxjax.diloco`.

    Raises:
      ValueError: a density, chunk size, number of bits or decay that the compressor
        refuses; what `relaxjax.diloco` refuses.
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
    require_transformation("sparse_loco", "inner", inner)
    require_whole("sparse_loco", "chunk_size", chunk_size)
    few = top_k(density, block_size=chunk_size, values=quantize(bits))
    compressor = error_feedback(few, decay=decay)
    exchange = ExchangeSpec(
        "sparse_loco", axis_name, compressor, bucket_bytes=bucket_bytes, specs=specs
    )
    step = outer_step(exchange, optax.sgd(outer_learning_rate))
    outer_half = local_steps(exchange, sync_every, step.init, step.update)
    return whole_method("sparse_loco", inner, outer_half)

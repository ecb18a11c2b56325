"""Send: from worker to worker, as between the stages of a pipeline.

Source: pipeline parallelism (Huang et al. 2019). KV in ring attention goes likewise.

    y_i = x_j for j -> i, else 0    g_{x_j} = g_{y_i} for j -> i, else 0

Cost: one message, each way.
"""

from typing import Any

import jax

from relaxjax._core._axis import to_local
from relaxjax.activations._legs import Pairs, sent
from relaxjax.activations._two_ways import ways
from relaxjax.compression import Compressor


def send(
    x: jax.Array,
    axis_name: str,
    perm: Pairs,
    *,
    forward: Compressor | None = None,
    backward: Compressor | None = None,
    key: Any = None,
) -> jax.Array:
    """`x` of the worker that sends to this one, and its gradient back.

    Experimental: this may change in any release.

    Args:
      x: float[..., h]; blocks of codes run along the last dimension.
      axis_name: the axis.
      perm: pairs of source and target, in which each worker is at most once a source
        and once a target; under `jax.vmap`, too, some may be neither.
      forward: compressor of the forward pass, without feedback; None: as it is.
      backward: compressor of the gradient.
      key: for random compressors, equal on all workers: a seed or a `jax.random` key.

    Returns:
      Like `jax.lax.ppermute`: zeros where nothing arrives.

    Raises:
      TypeError: a compressor is not one; `axis_name` is not one axis.
      ValueError: `perm` has a worker twice, or one that is not there; feedback; a
        random compressor without a key; `x` is not real floats.
      NameError: outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from relaxjax import activations, compression
      >>> onward = lambda x: activations.send(
      ...     x, "stage", [(0, 1), (1, 2)], forward=compression.mx("e4m3"))
      >>> x = jnp.array([[1.9], [0.3], [7.0]])
      >>> print(jax.vmap(onward, axis_name="stage")(x).ravel())
      [0.     1.875  0.3125]
    """
    chosen = ways("send", x, axis_name, forward, backward, key)
    pairs = [(int(source), int(target)) for source, target in perm]
    _check(pairs, chosen.workers)
    back = [(target, source) for source, target in pairs]
    return chosen.call(
        to_local(x, axis_name),
        lambda x, code: sent(x, axis_name, pairs, code),
        lambda g, code: sent(g, axis_name, back, code),
    )


def _check(pairs: Pairs, n: int) -> None:
    for end, workers in zip(
        ("source", "target"), zip(*pairs, strict=True), strict=False
    ):
        if len(set(workers)) < len(workers) or not set(workers) <= set(range(n)):
            raise ValueError(
                f"send: perm={list(pairs)} must have each {end} once, from 0 to {n - 1}"
            )

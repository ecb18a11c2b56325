"""A relaxation in one file: the sign of the gradient, with error feedback.

    p_i = e_i + g_i,  c_i = mean |p_i| sign(p_i),  e_i <- p_i - c_i,  out = mean of c_i

Check it with `relaxjax check FILE.py`. In the library it is this file and one row of
the tables: `Relaxation(name="signs", summary="...", build=before(signs))` in
relaxjax/gradients/_rows.py.
"""

from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from relaxjax.checkpoint import MEAN


class SignsState(NamedTuple):
    """Attributes: residual: what waits; `check` knows it by this name."""

    residual: Annotated[Any, MEAN]


def signs(axis_name: str) -> optax.GradientTransformation:
    """Sends one bit for each element, and a scale for each leaf."""

    def init(params):
        return SignsState(jax.tree.map(jnp.zeros_like, params))

    def update(updates, state, params=None):
        del params
        waiting = jax.tree.map(jnp.add, updates, state.residual)
        pairs = jax.tree.map(lambda p: _exchange(p, axis_name), waiting)
        mean, sent = jax.tree.transpose(
            jax.tree.structure(waiting), jax.tree.structure((0, 0)), pairs
        )
        return mean, SignsState(jax.tree.map(jnp.subtract, waiting, sent))

    return optax.GradientTransformation(init, update)


def _exchange(p: jax.Array, axis_name: str) -> tuple[jax.Array, jax.Array]:
    """The mean of all workers' decoded messages, and this worker's own."""
    if lax.axis_size(axis_name) == 1:
        return p, p  # nothing is sent, and nothing lost
    bits = jnp.packbits(p.ravel() >= 0)
    scale = jnp.mean(jnp.abs(p))
    all_bits = lax.all_gather(bits, axis_name)
    all_scales = lax.all_gather(scale, axis_name)

    def decode(bits, scale):
        signs = jnp.unpackbits(bits, count=p.size).astype(p.dtype) * 2 - 1
        return (scale * signs).reshape(p.shape)

    decoded = jax.vmap(decode)(all_bits, all_scales)
    # The sender decodes its own message, to know what the others have decoded.
    return jnp.mean(decoded, axis=0), decoded[lax.axis_index(axis_name)]


# Each worker sends its bits and scale to all others.
BYTES = {"signs": lambda size, workers: (workers - 1) * (-(-size // 8) + 4)}

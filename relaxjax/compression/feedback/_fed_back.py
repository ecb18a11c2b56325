"""The step of a rule of feedback: what came of it, and what it keeps.

    out, s' = after(g, c, mean, s),  c = p - lost       (on a worker with examples)
    out, s' = absent(c, mean, s)                        (on one without)
    s'' = s' where all of its fields are finite, else s (element by element)

The last line holds a NaN of one step off what is kept for the next ones. The update
shows it, so that a guard behind the reducer can drop it.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from relaxjax.compression._protocol import Feedback


def fed_back(
    feedback: Feedback,
    g: jax.Array,
    p: jax.Array,
    lost: jax.Array,
    mean: jax.Array,
    state: Any,
    absent: jax.Array | None = None,
) -> tuple[jax.Array, Any]:
    """The update and the next state, after p was sent and `lost` of it was lost.

    Elements whose next state would not be finite keep the one they have, while the
    update shows what was wrong: whoever drops that update can go on. All workers see
    the same mean, so what they keep in common stays equal. States keep their dtypes.
    """
    c = p - lost
    out, new = feedback.after(g, c, mean, state)
    if absent is not None and feedback.absent is not None:
        waited = feedback.absent(c, mean, state)
        pick = functools.partial(jnp.where, absent)
        out, new = jax.tree.map(pick, waited, (out, new))

    def of_elements(x: jax.Array) -> bool:
        return x.shape == g.shape and jnp.issubdtype(x.dtype, jnp.floating)

    fields = [jnp.isfinite(x) for x in jax.tree.leaves(new) if of_elements(x)]
    sound = functools.reduce(jnp.logical_and, fields, True)

    def keep(new: jax.Array, old: jax.Array) -> jax.Array:
        kept = jnp.where(sound, new, old) if of_elements(new) else new
        return kept.astype(old.dtype)

    return out, jax.tree.map(keep, new, state)

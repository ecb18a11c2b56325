"""What momentum in one bit asks of a variance v that stays.

One bit says +1 or -1 of every element, with one scale for many. So what travels is
m / D with D = sqrt(v^) + eps, steps of about one size, and not m: elements whose D is
small would be thrown far away (seen: images, of which some pixels are nearly always
dark).

Where v is 0, no worker has ever seen a gradient: what one bit says there is noise,
which eps would blow up.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax


def where_seen(v: Any, tree: Any) -> Any:
    """A tree like v, with zeros where no gradient has been."""
    return jax.tree.map(lambda v, x: jnp.where(v == 0, 0, x), v, tree)


def root(v: Any, b2: float, count: Any, eps: float) -> Any:
    """D = sqrt(v^) + eps, with v^ = v / (1 - b2^count)."""
    v_hat = optax.tree.bias_correction(v, b2, count)
    return jax.tree.map(lambda v: jnp.sqrt(v) + eps, v_hat)

"""Elements that have seen a gradient, by their variance.

Where v is 0, none has been: what one bit says there is noise, which a division by
sqrt(v) would blow up.
"""

from typing import Any

import jax
import jax.numpy as jnp


def where_seen(v: Any, tree: Any) -> Any:
    """A tree like v, with zeros where no gradient has been."""
    return jax.tree.map(lambda v, x: jnp.where(v == 0, 0, x), v, tree)

"""`merged` as one program: by itself it compiles each of its operations."""

from functools import partial
from typing import Any

import jax
import numpy as np

from relaxjax import merges


def merged(rule: merges.Rule, rows: Any, weights: Any = None) -> Any:
    """As `relaxjax.merges.merged`."""
    with np.errstate(over="ignore"):  # what float32 does not hold
        rows = jax.tree.map(np.asarray, rows)
        return jax.jit(partial(merges.merged, rule))(rows, weights)

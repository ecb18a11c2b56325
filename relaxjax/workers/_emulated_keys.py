"""Keys of `rbg` and `unsafe_rbg` beside workers that `jax.vmap` emulates.

Under `jax.vmap` equal keys of these draw unlike numbers: what should be common to all
workers, as noise behind a reducer, parts their models. On a mesh they draw alike.
"""

import warnings
from typing import Any

import jax
import numpy as np

from relaxjax._core._checks import is_traced
from relaxjax._core._random import COMMON
from relaxjax._core._tree import is_key, leaf_name

UNLIKE = ("rbg", "unsafe_rbg")


def warn_of_default() -> None:
    """Warns if keys are of these unless the user says otherwise."""
    default = jax.config.values["jax_default_prng_impl"]
    if default in UNLIKE:
        warnings.warn(
            f"emulate: jax_default_prng_impl is {default!r}, and emulated workers draw "
            "unlike numbers from equal keys of it, as jax.vmap does. Take keys of "
            f"another kind where workers should draw alike: jax.random.key(seed, "
            f"impl={COMMON!r})",
            stacklevel=3,
        )


def without_equal_keys(caller: str, state: Any) -> Any:
    """The state; refuses typed keys [n, ...] of these kinds that are all the same."""
    for path, x in jax.tree.leaves_with_path(state):
        if not isinstance(x, jax.Array) or not is_key(x) or is_traced(x):
            continue
        kind, rows = str(jax.random.key_impl(x)), np.asarray(jax.random.key_data(x))
        if kind in UNLIKE and len(rows) > 1 and (rows == rows[:1]).all():
            raise ValueError(
                f"{caller}: the key {leaf_name(path)!r} is of {kind!r} and the same on "
                "all workers, and emulated workers draw unlike numbers from equal keys "
                "of it, as jax.vmap does. Make it by jax.random.key(seed, "
                f"impl={COMMON!r}), or train on a mesh of devices"
            )
    return state

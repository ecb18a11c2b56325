"""A state of one transformation as that of another, which says when phases begin.

A run under a controller is at every moment the run of the table so far. A decision adds
a row to the table; the transformation of the longer table has the same arrays in its
state, and other ends of phases, which are a part of the structure. So the arrays go
over as they are, and the run of the whole table takes the same steps.

Cost: nothing is copied; the next step is compiled, as that of any phase is.
"""

from typing import Any

import jax

from relaxjax._core._phases import advance_phases, clocks_of
from relaxjax._core._tree import leaf_name


def continued(state: Any, like: Any) -> Any:
    """The arrays of a state in the structure of another, in the phase of its counts.

    Args:
      state: the state, with or without a worker axis.
      like: a state of the other transformation, or its shapes, as those of
        `jax.eval_shape(lambda: relaxjax.init(tx, params, mesh)[1])`.

    Returns:
      The arrays of `state`.

    Raises:
      ValueError: the leaves are not of the same shapes and dtypes; the message names
        the first.

    Example:
      >>> import jax, jax.numpy as jnp, relaxjax
      >>> from relaxjax import controllers
      >>> params = {"w": jnp.ones((8, 8))}
      >>> mesh = relaxjax.emulate(2)
      >>> of = lambda ranks: relaxjax.power_sgd("data", rank=ranks, highest=2)
      >>> _, state = relaxjax.init(of({0: 2}), params, mesh)
      >>> like = relaxjax.init(of({0: 2, 100: 1}), params, mesh)[1]
      >>> controllers.continued(state, like).clock.ends
      (0, 100)
    """
    before, after = (jax.tree.leaves_with_path(tree) for tree in (state, like))
    for (path, x), (place, y) in zip(before, after, strict=False):
        if (x.shape, x.dtype) != (y.shape, y.dtype):
            raise ValueError(
                f"controllers.continued: {leaf_name(path)} is {x.dtype}{x.shape}, and "
                f"{leaf_name(place)} of the other state {y.dtype}{y.shape}: the two "
                "transformations must keep the same arrays; for ranks, state the same "
                "highest="
            )
    if len(before) != len(after):
        raise ValueError(
            f"controllers.continued: {len(before)} arrays do not fit {len(after)}: the "
            "two transformations must be built alike but for their tables"
        )
    moved = jax.tree.structure(like).unflatten([x for _, x in before])
    is_hosted = any(clock.hosted for clock in clocks_of(state))
    return advance_phases(moved) if is_hosted else moved

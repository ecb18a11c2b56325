"""An exhibit: a wrong rule, what it gives, and what relaxjax gives for the same."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax


class Exhibit(NamedTuple):
    """A defect.

    Attributes:
      title: the trap, in a few words, as in `docs/museum.md`.
      wrong: the figure of the wrong rule, in NumPy or JAX.
      ours: the figure of relaxjax.
      holds: whether a figure obeys the law.
    """

    title: str
    wrong: Callable[[], float]
    ours: Callable[[], float]
    holds: Callable[[float], bool]


def near(value: float, tolerance: float = 1e-3) -> Callable[[float], bool]:
    """The law that a figure is this value."""
    return lambda found: bool(abs(found - value) <= tolerance)


def below(most: float) -> Callable[[float], bool]:
    """The law that a figure is no larger than this; NaN is."""
    return lambda found: bool(found <= most)


def on_workers(function: Callable[..., Any], *args: Any) -> Any:
    """A function of each worker's own arguments, over the axis "data", as NumPy."""
    each = jax.jit(jax.vmap(function, axis_name="data"))
    return jax.tree.map(np.asarray, each(*jax.tree.map(jnp.asarray, args)))


def once(tx: optax.GradientTransformation, gradients: Any, **extra: Any) -> Any:
    """The first updates; gradients [workers, ...], params 0."""
    whole: Any = optax.with_extra_args_support(tx)

    def first(g: Any, extra: Any) -> Any:
        params = jax.tree.map(jnp.zeros_like, g)
        return whole.update(g, tx.init(params), params, **extra)[0]

    return on_workers(first, gradients, extra)


def steps(tx: optax.GradientTransformation, gradients: Any) -> Any:
    """Updates of all steps; gradients [workers, steps, ...], params 0 at the start."""

    def run(g: Any) -> Any:
        params = jax.tree.map(lambda x: jnp.zeros_like(x[0]), g)

        def step(carry: Any, now: Any) -> Any:
            params, state = carry
            updates, state = tx.update(now, state, params)
            return (optax.apply_updates(params, updates), state), updates

        return jax.lax.scan(step, (params, tx.init(params)), g)[1]

    return on_workers(run, gradients)

"""One of several computations, by a condition that is the same on all workers.

Only the one that is chosen runs, so that a round may be silent. Under `jax.vmap`, which
is how workers are emulated, all of them run and one result is selected.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from relaxjax._core._axis import like_varying


def cond(
    condition: bool | jax.Array,
    act: Callable[..., Any],
    wait: Callable[..., Any],
    *operands: Any,
) -> Any:
    """`act(*operands)` where the condition holds, else `wait(*operands)`.

    The condition must be equal on all workers, as `act` may hold collectives; a Python
    bool is decided while tracing. Both results have the same shapes and dtypes; what
    varies over the workers in one is typed so in both.
    """
    if isinstance(condition, bool):
        return act(*operands) if condition else wait(*operands)
    return lax.cond(condition, *_alike([act, wait], operands), *operands)


def select_tree(condition: jax.Array, now: Any, before: Any) -> Any:
    """`now` where the condition holds, else `before`; typed PRNG keys too."""

    def one(x: Any, y: Any) -> jax.Array:
        return lax.select(jnp.broadcast_to(condition, jnp.shape(x)), x, y)

    return jax.tree.map(one, now, before)


def switch(
    number: int | jax.Array, choices: Sequence[Callable[..., Any]], *operands: Any
) -> Any:
    """`choices[number](*operands)`, for a number that is equal on all workers.

    All results have the same shapes and dtypes; what varies over the workers in one is
    typed so in all.
    """
    return lax.switch(number, _alike(choices, operands), *operands)


def _alike(
    choices: Sequence[Callable[..., Any]], operands: tuple[Any, ...]
) -> list[Callable[..., Any]]:
    """The choices, each with results that vary wherever one of the results does."""
    results = [jax.eval_shape(choice, *operands) for choice in choices]

    def typed(choice: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: functools.reduce(like_varying, results, choice(*args))

    return [typed(choice) for choice in choices]

"""One of several computations, by a condition that is the same on all workers.

Only the one chosen runs, so that a round may be silent. Under `jax.vmap`, so in
emulation, all run and one result is selected.
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

    Args:
      condition: bool[], equal on all workers, as collectives may be in `act`; a bool
        of Python is decided while tracing.
      act: to any tree of arrays.
      wait: to a tree of the same shapes and dtypes. What varies over the workers in
        one of the two results is typed so in both.
      *operands: of both.
    """
    if isinstance(condition, bool):
        return act(*operands) if condition else wait(*operands)
    return lax.cond(condition, *_alike([act, wait], operands), *operands)


def select_tree(condition: jax.Array, now: Any, before: Any) -> Any:
    """`now` where the condition holds, else `before`: what both computed is there.

    Args:
      condition: bool[].
      now: any tree of arrays, typed PRNG keys among them.
      before: the same tree.
    """

    def one(x: Any, y: Any) -> jax.Array:
        return lax.select(jnp.broadcast_to(condition, jnp.shape(x)), x, y)

    return jax.tree.map(one, now, before)


def switch(
    number: int | jax.Array, choices: Sequence[Callable[..., Any]], *operands: Any
) -> Any:
    """`choices[number](*operands)`.

    Args:
      number: int32[], equal on all workers, as collectives may be in the choices.
      choices: to trees of the same shapes and dtypes. What varies over the workers in
        one of the results is typed so in all.
      *operands: of all.
    """
    return lax.switch(number, _alike(choices, operands), *operands)


def _alike(
    choices: Sequence[Callable[..., Any]], operands: tuple[Any, ...]
) -> list[Callable[..., Any]]:
    """The choices, each with results of the types of all."""
    results = [jax.eval_shape(choose, *operands) for choose in choices]

    def typed(choose: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given: functools.reduce(like_varying, results, choose(*given))

    return [typed(choose) for choose in choices]

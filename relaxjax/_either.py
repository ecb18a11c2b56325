"""One of several computations, by a condition that is the same on all workers.

Only the one chosen runs, so that a round may be silent. Under `jax.vmap`, so in
emulation, all run and one result is selected.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax

from relaxjax._axis import like_varying


def either(
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
    acted = jax.eval_shape(act, *operands)
    waited = jax.eval_shape(wait, *operands)
    return lax.cond(
        condition,
        lambda *given: like_varying(act(*given), waited),
        lambda *given: like_varying(wait(*given), acted),
        *operands,
    )


def one_of(
    number: int | jax.Array, choices: Sequence[Callable[..., Any]], *operands: Any
) -> Any:
    """`choices[number](*operands)`.

    Args:
      number: int32[], equal on all workers, as collectives may be in the choices.
      choices: to trees of the same shapes and dtypes. What varies over the workers in
        one of the results is typed so in all.
      *operands: of all.
    """
    results = [jax.eval_shape(choose, *operands) for choose in choices]

    def alike(choose: Callable[..., Any]) -> Callable[..., Any]:
        def chosen(*given: Any) -> Any:
            out = choose(*given)
            for other in results:
                out = like_varying(out, other)
            return out

        return chosen

    return lax.switch(number, [alike(choose) for choose in choices], *operands)

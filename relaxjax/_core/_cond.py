"""One of several computations, by a condition that is the same on all workers.

Only the one that is chosen runs, so that a round may be silent. Under `jax.vmap`, which
is how workers are emulated, all of them run and one result is selected; `when`, of what
acts or stays as it is, spares that.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from relaxjax._core._axis import like_varying, tracks_vma


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


def when(
    condition: bool | jax.Array, act: Callable[..., Any], same: Any, *read: Any
) -> Any:
    """`act(same, *read)` where the condition holds, else `same` in its own memory.

    A loop of one turn at most, and no conditional: through that, XLA copies what stays
    as it is (on a GPU by a kernel for each leaf, in each silent step). Under `jax.vmap`
    the loop is left out where no worker takes it; conditionals run all their branches.

    The condition is as for `cond`. `act` returns what `same` is, in shapes and dtypes.
    No gradient passes backward through it.
    """
    if isinstance(condition, bool):
        return act(same, *read) if condition else same
    axes, first = jax.sharding.get_abstract_mesh().manual_axes, same
    if any(map(tracks_vma, axes)):  # else a trace of `act` would tell nothing
        kind = like_varying(same, jax.eval_shape(act, same, *read))
        first = jax.tree.map(lambda x: like_varying(x, condition), kind)

    def turn(carry: tuple[jax.Array, Any]) -> tuple[jax.Array, Any]:
        due, now = carry
        # XLA for GPUs moves what no turn changes out of a loop, collectives too, where
        # it would run in every step. What depends on the flag stays.
        # One barrier each: walks take its results for made of all that goes in.
        now, others = jax.tree.map(
            lambda x: lax.optimization_barrier((due, x))[1], (now, read)
        )
        over = like_varying(_never(due), due)
        return over, like_varying(act(now, *others), first)

    return lax.while_loop(lambda carry: carry[0], turn, (condition, first))[1]


def _never(due: jax.Array) -> jax.Array:
    """False, at the end of a turn.

    Where no device is behind a worker, a loop holds no collective, and XLA for CPUs
    makes one function of a loop of few bytes, which takes it minutes for many leaves.
    It does not where there is a sort in it (`small-while-loop-hoisting`, jax 0.12).
    """
    over, mapped = jnp.zeros((), bool), jax.sharding.get_abstract_mesh().manual_axes
    return over if mapped else lax.sort(jnp.stack([due, over]))[0]


def select_tree(condition: jax.Array, now: Any, before: Any) -> Any:
    """`now` where the condition holds, else `before` in its dtypes; PRNG keys too."""

    def one(x: Any, y: Any) -> jax.Array:
        return lax.select(jnp.broadcast_to(condition, jnp.shape(x)), x, y)

    return jax.tree.map(one, now, in_dtypes_of(now, before))


def in_dtypes_of(kinds: Any, tree: Any) -> Any:
    """The tree in the dtypes of another: Adam's moments get those of its gradients."""

    def one(kind: Any, x: Any) -> Any:
        wanted = jnp.result_type(kind)
        return x if jnp.result_type(x) == wanted else jnp.asarray(x, wanted)

    return jax.tree.map(one, kinds, tree)


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

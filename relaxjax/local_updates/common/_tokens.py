"""Tokens that workers take in: how many in each step, and what a contribution weighs.

Source: Decoupled DiLoCo (Douillard et al. 2026), as second-hand notes give it. A
worker that has taken in c tokens in s steps since it last received a fragment weighs,
in its merge,

    w = c^2 / s               (the amount c times the batch size c / s)
    w = 0                     (if s = 0)

A worker without tokens in a step stands still: it does not move, its optimizer's state
waits, the step does not count, and a gradient that is 0/0 is not looked at. So a table
of tokens describes slow workers, and those that are gone for a while.

Cost: nothing is sent; a select over the optimizer's state where there is a table.
"""

from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from relaxjax._core._axis import AxisName, axis_size
from relaxjax._core._checks import require_table
from relaxjax._core._cond import select_tree
from relaxjax._core._merge_rules import EQUAL


class Tokens(NamedTuple):
    """Tokens of each worker in each step; without a table, one in every step."""

    caller: str
    axis_name: AxisName
    table: np.ndarray | None

    @property
    def period(self) -> int:
        """Number of steps after which the table repeats."""
        return 1 if self.table is None else len(self.table)

    def at(self, step: jax.Array) -> jax.Array:
        """float32[]: this worker's tokens in a step, counted around the period."""
        if self.table is None:
            return jnp.ones((), jnp.float32)
        n, columns = axis_size(self.axis_name, self.caller), self.table.shape[1]
        if columns != n:
            raise ValueError(
                f"{self.caller}: tokens has {columns} columns and the axis has {n} "
                "workers: give one column for each"
            )
        place = step % self.period, lax.axis_index(self.axis_name)
        return jnp.asarray(self.table)[place]

    def standing_still(self, inner: optax.GradientTransformation) -> Any:
        """The optimizer, except in steps without tokens."""
        if self.table is None:
            return inner
        tx = optax.with_extra_args_support(inner)

        def init(params: optax.Params) -> Any:
            return WorkingState(jnp.zeros((), jnp.int32), tx.init(params))

        def update(updates, state, params=None, **extra_args) -> Any:
            works = self.at(state.step) > 0
            u, new = tx.update(updates, state.inner_state, params, **extra_args)
            u = jax.tree.map(lambda x: jnp.where(works, x, jnp.zeros_like(x)), u)
            kept = select_tree(works, new, state.inner_state)
            return u, WorkingState((state.step + 1) % self.period, kept)

        return optax.GradientTransformationExtraArgs(init, update)


class WorkingState(NamedTuple):
    """State of an optimizer that stands still without tokens.

    Attributes:
      step: int32, number of the step, counted around the table; equal on all workers.
      inner_state: the optimizer's.
    """

    step: Annotated[jax.Array, EQUAL]
    inner_state: optax.OptState


def tokens_of(caller: str, axis_name: AxisName, tokens: Any) -> Tokens:
    """Checks a table of tokens: finite numbers [period, workers], 0 or more."""
    if tokens is None:
        return Tokens(caller, axis_name, None)
    such_as = "a row for each step, such as [[512, 512, 256]]"
    rule = f"numbers [period, workers] with {such_as}"
    table = require_table(caller, "tokens", tokens, "iuf", rule)
    if not (np.isfinite(table).all() and (table >= 0).all() and table.any()):
        raise ValueError(
            f"{caller}: tokens hold {table.min()} to {table.max()}, and must be finite "
            "and 0 or more, somewhere above 0: 0 is a worker that stands still"
        )
    return Tokens(caller, axis_name, table.astype(np.float32))


def weight_of(tokens: jax.Array, steps: jax.Array) -> jax.Array:
    """float32: tokens^2 / steps, 0 without steps."""
    return jnp.where(steps > 0, tokens * (tokens / jnp.maximum(steps, 1)), 0)

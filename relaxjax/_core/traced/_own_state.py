"""The state of another transformation, refused by name where an update fails on it.

A state is known by its kinds: the class of the whole, and the classes of the named
tuples in it. Only an update that fails is looked at, so that one that succeeds costs
nothing, and a state that a newer version grows is not refused for its looks.
"""

import re
from collections.abc import Callable
from typing import Any

import jax
import optax

from relaxjax._core.layouts._unreduced import refuse_unreduced

_FAILURES = AttributeError, TypeError, ValueError, LookupError
_NAMED = re.compile(r"namedtuple\[(\w+)\]")


def of_own_state(
    name: str, init: Callable[..., Any], update: Callable[..., Any]
) -> optax.GradientTransformationExtraArgs:
    """The transformation, which says so if the state that `update` gets is not its own.

    Raises:
      TypeError: in `update`, which failed, and `init` makes a state of other kinds.
    """

    def told(updates, state, params=None, **extra_args) -> Any:
        try:
            return update(updates, state, params, **extra_args)
        except _FAILURES as error:
            try:
                like = jax.eval_shape(init, updates if params is None else params)
            except Exception:  # what the update says is the reason then
                like = state
            got, needed = _kinds(state), _kinds(like)
            if got == needed:
                raise
            raise TypeError(
                f"{name}: update got a state of {got}, which is another "
                f"transformation's, and needs its own, of {needed}. Give it the state "
                "that tx.init or relaxjax.init makes for the same tx; restore a "
                "checkpoint into such a state"
            ) from error

    return optax.GradientTransformationExtraArgs(init, told)


def whole_method(
    name: str, *parts: optax.GradientTransformation
) -> optax.GradientTransformationExtraArgs:
    """A method of models: the optimizer of each worker, and what stands around it."""
    both = optax.with_extra_args_support(optax.chain(*parts))

    def update(updates, state, params=None, **extra_args) -> Any:
        refuse_unreduced(name, updates)
        return both.update(updates, state, params, **extra_args)

    return of_own_state(name, both.init, update)


def _kinds(state: Any) -> str:
    inside = _NAMED.findall(str(jax.tree.structure(state)))
    return ", ".join(dict.fromkeys([type(state).__name__, *inside]))

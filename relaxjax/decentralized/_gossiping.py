"""The transformation of a decentralised method, from its rule for a step."""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from relaxjax._core._local import LocalState
from relaxjax._core._merge_rules import MEAN, RESET
from relaxjax._core._tree import layout_of, require_params, require_same
from relaxjax._core._weights import refuse_weight
from relaxjax.decentralized._round import Mixing, widened


class GossipState(NamedTuple):
    """State of every decentralised method.

    Attributes:
      step: int32, counted around; equal on all workers.
      kept: what the method remembers, a NamedTuple of its own; () for `gossip`.
      leaves: those that differ between workers.
    """

    step: Annotated[jax.Array, RESET]
    kept: Any
    leaves: Annotated[LocalState, MEAN]


def gossiping(
    mixing: Mixing,
    start: Callable[[optax.Params], Any],
    rule: Callable[[Any, Any, Any, jax.Array], tuple[Any, Any]],
) -> optax.GradientTransformationExtraArgs:
    """The transformation.

    Args:
      mixing: how the method gossips.
      start: from the params, what the method keeps.
      rule: `rule(updates, params, kept, step)`: the updates that come out, and what is
        kept for the next step.
    """
    caller = mixing.caller

    def init(params: optax.Params) -> Any:
        marks = LocalState(layout_of(params))
        return GossipState(jnp.zeros((), jnp.int32), start(params), marks)

    def update(updates, state, params=None, *, weight=None, **extra_args) -> Any:
        del extra_args
        refuse_weight(weight, caller)
        require_same(state.leaves.layout, updates, caller)
        out, kept = rule(updates, params, state.kept, state.step)
        return out, GossipState(mixing.next_step(state.step), kept, state.leaves)

    return optax.GradientTransformationExtraArgs(init, update)


def models(mixing: Mixing, params: Any, updates: Any) -> tuple[Any, Any]:
    """Params and updates in float32, or wider.

    Raises:
      ValueError: no params.
    """
    require_params(params, mixing.caller, "which it averages")
    return widened(params), widened(updates)


def zeros_like(params: optax.Params) -> Any:
    """In float32, or wider."""
    return jax.tree.map(jnp.zeros_like, widened(params))

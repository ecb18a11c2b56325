"""What `decoupled_diloco` keeps: common parts, contributions under way, counters."""

from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from relaxjax._core._local import LocalState
from relaxjax._core._merge_rules import EQUAL, MEAN, RESET
from relaxjax.local_updates.periodic._diloco import AnchorState
from relaxjax.periods import Meetings


class Contribution(NamedTuple):
    """What this worker has read of a fragment, until it is merged.

    Attributes:
      left: int32, steps until the merge; -1 if nothing is under way.
      gradient: D_i, float32 where a param is narrower.
      weight: float32, w_i; 0 if this worker is absent.
      adopts: bool, whether this worker takes over what is merged.
    """

    left: Annotated[jax.Array, RESET]
    gradient: Annotated[Any, RESET]
    weight: Annotated[jax.Array, RESET]
    adopts: Annotated[jax.Array, RESET]


class DecoupledDilocoState(NamedTuple):
    """State of the outer half of `decoupled_diloco`; lists have an entry per fragment.

    Attributes:
      step: int32, the number of steps, modulo H; or, under a schedule, the counters of
        `relaxjax.periods.Meetings`.
      merge: int32, the number of the next merge, which wraps around.
      tick: int32, the number of the next step, counted around the table of tokens.
      kept: the state of each fragment's outer step.
      contributions: what is under way.
      tokens: float32[P], tokens since this worker last took each fragment over.
      steps: float32[P], steps with tokens since then.
      leaves: the leaves that differ between workers.
    """

    step: Annotated[jax.Array | Meetings, EQUAL]
    merge: Annotated[jax.Array, EQUAL]
    tick: Annotated[jax.Array, EQUAL]
    kept: list[AnchorState]
    contributions: list[Contribution]
    tokens: Annotated[jax.Array, MEAN]
    steps: Annotated[jax.Array, MEAN]
    leaves: Annotated[LocalState, MEAN]


def first_state(
    memory: list[AnchorState], layout: Any, step: Any
) -> DecoupledDilocoState:
    """Nothing under way, nothing counted; `memory` is each fragment's outer step."""

    def nothing(anchor: Any) -> Contribution:
        left, weight = jnp.full((), -1, jnp.int32), jnp.zeros((), jnp.float32)
        return Contribution(left, optax.tree.zeros_like(anchor), weight, weight > 0)

    merge, tick = (jnp.zeros((), jnp.int32) for _ in range(2))
    tokens, steps = (jnp.zeros(len(memory), jnp.float32) for _ in range(2))
    under_way = [nothing(m.anchor) for m in memory]
    rest = tokens, steps, LocalState(layout)
    return DecoupledDilocoState(step, merge, tick, memory, under_way, *rest)

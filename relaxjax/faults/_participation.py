"""Participation: workers are absent from rounds and come back, by a table or by chance.

Source: the rounds of federated averaging, in which some clients take part (McMahan et
al. 2017), here as a reproducible, emulated fault. With P the workers that are present
in a round, u_i their updates, and e_i the residual of a compressor C with feedback:

    out = sum over P of C(n / |P| u_i + e_i) / n,   e_i <- what C lost          (i in P)
                                                    e_i <- e_i                  (else)

    without C:   out = the mean of u_i over P
    with C:      sum over rounds of out + mean of e over all n = sum of those means
    P empty:     out = 0, and the state stays as it was
    P = all:     the transformation itself, bit for bit on devices

A worker that is absent contributes nothing, but takes the common update all the same:
it comes back with the model of the others. In lock step this is the mathematics of a
worker that drops out, and saves no time.

Cost: one int32 and one float32 more to all-reduce, and a select over the state.
"""

from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from relaxjax._core._axis import AxisName, axes_of
from relaxjax._core._checks import require_transformation, require_whole
from relaxjax._core._cond import select_tree
from relaxjax._core._merge_rules import EQUAL
from relaxjax._core.traced._marks import of_own_state
from relaxjax._core.traced._usual import usually
from relaxjax.faults._fault_schedule import fault_schedule
from relaxjax.faults._skip_nonfinite import SkipNonfiniteState

_CALLER = "participation"


class ParticipationState(NamedTuple):
    """State of `participation`.

    Attributes:
      step: int32, number of the step, which wraps around; equal on all workers.
      inner_state: state of `tx`.
    """

    step: Annotated[jax.Array, EQUAL]
    inner_state: optax.OptState


def participation(
    tx: optax.GradientTransformation,
    axis_name: AxisName,
    present: Any,
    *,
    every: int = 1,
    seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
    """Wraps `tx`: in each round only some workers take part.

    An absent worker has a weight of zero (`tx.update(..., weight=0)`), so any reducer
    that takes a weight composes. So do `local_sgd`, `diloco` and their kin, with
    `every=sync_every`: a worker that is absent from a round goes on from its own model,
    and takes the common one after the next round that it is present in. In a round in
    which nobody is present nobody steps, on its own model neither. Methods that take no
    weight, such as `gossip`, say so in `update`.

    Put `skip_nonfinite` inside: then it ignores whatever an absent worker holds. A step
    that it skips does not count in the round.

    Args:
      tx: a whole chain, reducer and optimizer, so that a round in which nobody is
        present leaves no trace on the moments either.
      axis_name: the axis, or a tuple (outer, inner), whose workers are counted host by
        host.
      present: bools or 0 and 1 [period, workers] with a row for each round:
        `[[1, 1, 1, 0], [1, 1, 1, 1]]` is a worker that misses every other round; or the
        probability that a worker is present, drawn for each round and worker.
      every: number of steps in a round.
      seed: seed of the draws.

    Returns:
      A gradient transformation. Its `update` takes `weight=` and passes it on to `tx`.

    Raises:
      ValueError: `present` is neither; `every < 1`; in `update`: the table does not
        have a column for each worker, or `tx` refuses the call.
      NameError: `update` outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp, optax, relaxjax
      >>> chain = optax.chain(relaxjax.all_reduce("data"), optax.sgd(1.0))
      >>> tx = relaxjax.participation(chain, "data", [[1, 1, 0]])
      >>> update = lambda g: tx.update(g, tx.init(g))[0]
      >>> print(jax.vmap(update, axis_name="data")(jnp.array([1.0, 3.0, 8.0])))
      [-2. -2. -2.]
    """
    require_transformation("participation", "tx", tx)
    axes_of(axis_name)
    schedule = fault_schedule(_CALLER, "present", present, (None,), seed)
    if schedule.is_always(False):
        raise ValueError(
            f"{_CALLER}: present={present!r} says that nobody ever takes part, so that "
            "nothing would be trained; take a probability above 0, or a table with a 1"
        )
    require_whole(_CALLER, "every", every)
    steps = every * min(schedule.period, (2**31 - 1) // every)
    inner = optax.with_extra_args_support(tx)

    def init(params: optax.Params) -> Any:
        return ParticipationState(jnp.zeros((), jnp.int32), inner.init(params))

    def update(updates, state, params=None, *, weight=None, **extra_args) -> Any:
        here = schedule.here(_CALLER, "present", axis_name, state.step // every)
        w = jnp.where(here, 1 if weight is None else weight, 0)
        new, now = inner.update(
            updates, state.inner_state, params, weight=w, **extra_args
        )
        count = lax.psum(jnp.int32(here), axis_name)
        with usually():
            anyone = count > 0
        new = jax.tree.map(lambda u: jnp.where(anyone, u, jnp.zeros_like(u)), new)
        inner_state = select_tree(anyone, now, state.inner_state)
        taken = _taken(state.inner_state, inner_state)
        return new, ParticipationState((state.step + taken) % steps, inner_state)

    return of_own_state(_CALLER, init, update)


def _taken(before: Any, after: Any) -> Any:
    """1, or 0 for a step that `skip_nonfinite` left out, with all clocks inside."""
    if not isinstance(after, SkipNonfiniteState):
        return 1
    return jnp.where(after.skipped == before.skipped, 1, 0)

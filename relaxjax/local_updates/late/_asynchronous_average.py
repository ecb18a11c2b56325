"""Asynchronous model averaging: models are averaged while workers go on.

Source: BAGUA's asynchronous model average (Gan et al. 2021), where a thread averages
every so many milliseconds; here time is counted in steps, so that every run is the
same. With H = sync_every and tau = delay, after each step T that is a multiple of H:

    x_i <- x_i + u_i                        (each step)
    s_i = x_i                               (after step T - tau: what is read)
    a <- a + mean_i C(s_i - a)              (after step T: the mean arrives)
    x_i <- x_i + (a - s_i)

A worker keeps what it has done in the tau steps, so that the mean of all models moves
by the mean update alone (without a compressor C). With tau = 0 this is local SGD. With
tau > 0 no two workers are equal, not even after an exchange.

The exchange of s_i begins at step T. With tau > 0 s_i was in the state before that step
began, so that the two may overlap. In lock step nobody runs ahead of a slow worker,
which is what BAGUA's milliseconds are for.

Cost: what `all_reduce` sends for the params in float32, once in H steps. State: a and
s_i, each of the params' size, and the feedback's. s_i is selected anew in each step.
"""

from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from relaxjax._core._axis import AxisName
from relaxjax._core._checks import require_whole
from relaxjax._core._cond import when
from relaxjax._core._local import LocalState
from relaxjax._core._merge_rules import EQUAL, MEAN
from relaxjax._core._tree import layout_of
from relaxjax._core.traced._marks import marked
from relaxjax.compression import Compressor
from relaxjax.local_updates.common._local_steps import ExchangeSpec
from relaxjax.local_updates.periodic._diloco import AnchorState, outer_step
from relaxjax.periods import Meetings, Period, laps

_CALLER = "asynchronous_average"


class AsynchronousAverageState(NamedTuple):
    """State of `asynchronous_average`.

    Attributes:
      step: int32, steps since the last mean arrived; or, under a schedule, the counters
        of `relaxjax.periods.Meetings`.
      kept: a, equal on all workers, and the reducer's state.
      read: s_i, as last read; float32 where a param is narrower.
      waiting: bool, whether the mean of `read` is still to arrive.
      leaves: the leaves that differ between workers.
    """

    step: Annotated[jax.Array | Meetings, EQUAL]
    kept: AnchorState
    read: Annotated[Any, MEAN]
    waiting: Annotated[jax.Array, EQUAL]
    leaves: Annotated[LocalState, MEAN]


def asynchronous_average(
    axis_name: AxisName,
    sync_every: Period,
    *,
    delay: int = 1,
    compressor: Compressor | None = None,
    algorithm: str = "auto",
    bucket_bytes: int = 8 * 2**20,
    specs: Any = None,
    seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
    """Averages the workers' models every `sync_every` steps, as they were before.

    Experimental: this may change in any release.

    Put it last in the chain, like `local_sgd`. The models differ: `relaxjax.consensus`
    gives one.

    Args:
      axis_name: the axis, or a tuple (outer, inner).
      sync_every: H, the number of steps from one mean to the next, 1 or more; or a
        schedule of `relaxjax.periods`, whose periods are tau + 1 steps at least.
      delay: tau, the number of steps from reading the models to their mean, 0 to H - 1.
      compressor: see `local_sgd`.
      algorithm: see `relaxjax.all_reduce`.
      bucket_bytes: see `relaxjax.all_reduce`.
      specs: see `relaxjax.all_reduce`.
      seed: the seed of random compressors.

    Returns:
      A gradient transformation, as in `local_sgd`, without `weight=`.

    Raises:
      ValueError: `sync_every < 1`, a delay below 0 or not below `sync_every`; what
        `local_sgd` refuses; in `update` a `weight`.
      NameError: `update` outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp, optax, relaxjax
      >>> tx = optax.chain(
      ...     optax.sgd(1.0), relaxjax.asynchronous_average("data", 2, delay=1)
      ... )
      >>> def train(gradient):
      ...     x = jnp.float32(0)
      ...     state = tx.init(x)
      ...     for _ in range(2):
      ...         updates, state = tx.update(gradient, state, x)
      ...         x = optax.apply_updates(x, updates)
      ...     return x
      >>> # The mean of the first step, -3, and each worker's own second step.
      >>> print(jax.vmap(train, axis_name="data")(jnp.array([1.0, 2.0, 6.0])))
      [-4. -5. -9.]
    """
    _check(sync_every, delay)
    exchange = ExchangeSpec(
        _CALLER, axis_name, compressor, algorithm, bucket_bytes, specs, seed
    )
    outer = outer_step(exchange, optax.sgd(1.0))
    times = laps(_CALLER, "sync_every", sync_every, 1, delay + 1)

    def init(params: optax.Params) -> Any:
        memory = outer.init(params)
        read = optax.tree.zeros_like(memory.anchor)
        leaves = LocalState(layout_of(params))
        step, waiting = times.start(), jnp.zeros((), bool)
        return AsynchronousAverageState(step, memory, read, waiting, leaves)

    def update(updates, state, params=None, *, weight=None, **extra_args) -> Any:
        del extra_args
        exchange.require(state, updates, params, weight)
        step, memory, read, waiting, leaves = state
        place, h = times.place(step)  # it may be past it, of a longer period
        u, x = (optax.tree.cast_like(tree, memory.anchor) for tree in (updates, params))
        reads = place == h - delay
        waiting |= reads
        arrives = waiting & (place == h)
        read = jax.tree.map(lambda x, u, s: jnp.where(reads, x + u, s), x, u, read)

        def arrive(before: tuple[Any, AnchorState], read: Any) -> Any:
            u, memory = before
            memory = outer.update(optax.tree.sub(memory.anchor, read), memory, None)
            moved = jax.tree.map(lambda u, a, s: u + (a - s), u, memory.anchor, read)
            return moved, memory

        u, memory = when(arrives, arrive, (u, memory), read)
        step = times.after(step, place)
        left = step, memory, read, waiting & ~arrives, leaves
        return u, AsynchronousAverageState(*left)

    return marked(_CALLER, "models", axis_name, init, update)


def _check(sync_every: Period, delay: int) -> None:
    require_whole(_CALLER, "delay", delay, 0)
    if callable(sync_every):
        return
    require_whole(_CALLER, "sync_every", sync_every)
    if delay >= sync_every:
        raise ValueError(
            f"{_CALLER}: delay={delay} must be below sync_every={sync_every}: what is "
            "read must be back before the next is read; take a longer sync_every, or a "
            f"delay of {sync_every - 1} or less"
        )

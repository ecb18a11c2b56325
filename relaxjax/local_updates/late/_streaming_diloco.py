"""Streaming DiLoCo: fragments of the model synchronize in turn, and overlap.

Source: Douillard et al. 2025; order and names as in torchft. The leaves are dealt out
to P fragments; each takes DiLoCo's outer step
(`relaxjax.local_updates.periodic._diloco`) every H steps, H / P steps after the one
before it. With a a fragment's common part:

    x_i <- x_i + u_i                          (each step)
    D_i = a - x_i                             (at step T - tau: what is sent)
    a = a + O(mean_i C(D_i))                  (at step T)
    x_i = (1 - alpha) a + alpha x_i

Workers go on in the tau steps between sending and receiving; alpha keeps a part of
where they went. With P = 1, tau = 0 and alpha = 0 this is DiLoCo.

In one program the tau steps hide the exchange behind the step in which it is awaited:
what is sent was there before that step. (They do not make a slow link faster.)

Cost: that of DiLoCo over H steps, a P-th at a time. State: that of DiLoCo, and D_i.
"""

import functools
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from relaxjax._core._axis import AxisName
from relaxjax._core._checks import is_traced, require_transformation, require_whole
from relaxjax._core._cond import when
from relaxjax._core._local import LocalState
from relaxjax._core._merge_rules import EQUAL, MEAN
from relaxjax._core._tree import layout_of
from relaxjax._core.layouts._sharding import fitting
from relaxjax._core.traced._marks import marked, whole_method
from relaxjax.compression import Compressor
from relaxjax.local_updates.common._fragments import deal, join, split, steps_between
from relaxjax.local_updates.common._local_steps import ExchangeSpec, outer_gradient
from relaxjax.local_updates.periodic._diloco import AnchorState, outer_step
from relaxjax.periods import Meetings, Period, laps

_CALLER = "streaming_diloco"


class StreamingDilocoState(NamedTuple):
    """State of the outer half of `streaming_diloco`; lists have an entry per fragment.

    A fragment is a tree like the params, with `optax.MaskedNode` for others' leaves.

    Attributes:
      step: int32, the number of steps, modulo H; or, under a schedule, the counters of
        `relaxjax.periods.Meetings`.
      kept: the state of each fragment's outer step.
      sent: D_i of each fragment, as last read; float32 where a param is narrower.
      waiting: bool[P], whether the mean of each D_i is still to arrive.
      leaves: the leaves that differ between workers.
    """

    step: Annotated[jax.Array | Meetings, EQUAL]
    kept: list[AnchorState]
    sent: Annotated[list[Any], MEAN]
    waiting: Annotated[jax.Array, EQUAL]
    leaves: Annotated[LocalState, MEAN]


def streaming_diloco(
    inner: optax.GradientTransformation,
    axis_name: AxisName,
    sync_every: Period,
    *,
    fragments: int = 2,
    overlap: int = 0,
    mixing: float = 0.0,
    fragment_of: Callable[[str], int] | None = None,
    outer: optax.GradientTransformation | None = None,
    compressor: Compressor | None = None,
    algorithm: str = "auto",
    bucket_bytes: int = 8 * 2**20,
    specs: Any = None,
    seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
    """DiLoCo whose model synchronizes in parts, one at a time.

    Args:
      inner: each worker's optimizer, which sees its own gradients.
      axis_name: the axis, or a tuple (outer, inner).
      sync_every: H, the number of steps from one outer step of a fragment to its next.
        Or a schedule of `relaxjax.periods`, which is asked when all fragments have
        met; its periods are taken up to a multiple of P, of P (tau + 1) at least.
      fragments: P, the number of fragments; H is a multiple of it.
      overlap: tau, the number of steps from sending to receiving, 0 to H / P - 1.
      mixing: alpha, in [0, 1]: the share of its own model that a worker keeps.
      fragment_of: from a leaf's name to its fragment, 0 to P - 1; None deals the leaves
        out by size.
      outer: see `relaxjax.diloco`; each fragment has its own state.
      compressor: see `relaxjax.diloco`.
      algorithm: see `relaxjax.all_reduce`.
      bucket_bytes: see `relaxjax.all_reduce`.
      specs: see `relaxjax.all_reduce`; for the whole model.
      seed: the seed of random compressors.

    Returns:
      A gradient transformation, as in `relaxjax.diloco`, without `weight=`.

    Raises:
      TypeError: in `init`: an outer optimizer that needs a loss or other arguments.
      ValueError: H or P below 1, H not a multiple of P, an overlap of H / P or more, a
        mixing outside [0, 1]; in `init`: a fragment without leaves, or one that does
        not exist; what `relaxjax.diloco` refuses; in `update` a `weight`.
      NameError: `update` outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp, optax, relaxjax
      >>> tx = relaxjax.streaming_diloco(
      ...     optax.sgd(1.0), "data", 2, outer=optax.sgd(1.0)
      ... )
      >>> def train(g):
      ...     x = {"a": jnp.zeros(()), "b": jnp.zeros(())}
      ...     updates, _ = tx.update({"a": g, "b": g}, tx.init(x), x)
      ...     return optax.apply_updates(x, updates)
      >>> after = jax.vmap(train, axis_name="data")(jnp.array([1.0, 3.0]))
      >>> print(after["a"], after["b"])  # a is common, b will be
      [-2. -2.] [-1. -3.]
    """
    require_transformation("streaming_diloco", "inner", inner)
    _check(sync_every, fragments, overlap, mixing)
    times = laps(_CALLER, "sync_every", sync_every, fragments, overlap + 1)
    tau, fragment = overlap, functools.partial(_update_fragment, mixing)
    exchange = ExchangeSpec(
        _CALLER, axis_name, compressor, algorithm, bucket_bytes, specs, seed
    )
    step = outer_step(exchange, outer)
    numbers_of = functools.partial(deal, _CALLER, fragments, fragment_of)

    def init(params: optax.Params) -> Any:
        memory = [step.init(x) for x in split(fragments, numbers_of(params), params)]
        sent = [optax.tree.zeros_like(state.anchor) for state in memory]
        count, waiting = times.start(), jnp.zeros(fragments, bool)
        leaves = LocalState(layout_of(params))
        return StreamingDilocoState(count, memory, sent, waiting, leaves)

    def update(updates, state, params=None, *, weight=None, **extra_args) -> Any:
        del extra_args
        exchange.require(state, updates, params, weight)
        numbers, (count, every) = numbers_of(updates), times.place(state.step)
        parts_of = functools.partial(split, fragments, numbers)
        left = every * jnp.arange(1, fragments + 1) - count
        waiting = state.waiting | (left == tau)
        meets = waiting & (left == 0)
        fit = fitting(specs, updates, _CALLER)
        steps = [
            outer_step(exchange._replace(specs=part), outer)
            for part in ([None] * fragments if fit is None else parts_of(fit))
        ]
        trees = steps, parts_of(updates), parts_of(params), state.kept, state.sent
        results = map(fragment, left == tau, meets, *trees)
        u, memory, sent = (list(parts) for parts in zip(*results, strict=True))
        now = times.after(state.step, count)
        after = now, memory, sent, waiting & ~meets, state.leaves
        return join(numbers, u), StreamingDilocoState(*after)

    outer_half = marked(_CALLER, "models", axis_name, init, update)
    return whole_method(_CALLER, inner, outer_half)


def _update_fragment(
    alpha: float, reads, meets, step, u, x, memory, sent
) -> tuple[Any, AnchorState, Any]:
    """A fragment's update, memory and D_i."""
    u, x = (optax.tree.cast_like(tree, memory.anchor) for tree in (u, x))
    read = outer_gradient(memory.anchor, x, u)
    sent = optax.tree.where(reads, read, sent)

    def meet(before: tuple[Any, AnchorState], sent: Any) -> tuple[Any, AnchorState]:
        u, memory = before
        memory = step.update(sent, memory, None)
        moved = jax.tree.map(
            lambda a, x, u: (1 - alpha) * (a - x) + alpha * u, memory.anchor, x, u
        )
        return moved, memory

    u, memory = when(meets, meet, (u, memory), sent)
    return u, memory, sent


def _check(sync_every: Period, fragments: int, overlap: int, mixing: float) -> None:
    require_whole(_CALLER, "fragments", fragments)
    require_whole(_CALLER, "overlap", overlap, 0)
    if not is_traced(mixing) and not 0 <= mixing <= 1:
        raise ValueError(
            f"{_CALLER}: mixing={mixing} must be in [0, 1]: 0 takes the common model, "
            "1 keeps the worker's own"
        )
    if callable(sync_every):
        return
    every = steps_between(_CALLER, sync_every, fragments)
    if overlap >= every:
        raise ValueError(
            f"{_CALLER}: overlap={overlap} must be below sync_every / fragments = "
            f"{every}: what is sent must be back before the next is sent"
        )

"""Streaming DiLoCo: fragments of the model synchronise in turn, and overlap.

Source: Douillard et al. 2025; order and names as in torchft. The leaves are dealt out
to P fragments; each synchronises every H steps, H / P steps after the one before it. Of
a fragment, with a its common part:

    x_i <- x_i + u_i                          (each step)
    D_i = a - x_i                             (at step T - tau: what is sent)
    a = a + O(mean_i C(D_i))                  (at step T)
    x_i = (1 - alpha) a + alpha x_i

tau steps lie between what is sent and what comes back, in which workers go on; alpha
keeps a part of where they went. With P = 1, tau = 0 and alpha = 0 this is DiLoCo.

In one program the tau steps hide the exchange behind the step in which it is awaited:
what is sent was there before it. (They do not make a slow link faster.)

Cost: as DiLoCo over H steps, but a P-th at a time. State: that of DiLoCo, and D_i.
"""

import functools
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from relaxjax._core._axis import AxisName
from relaxjax._core._checks import require_whole
from relaxjax._core._cond import cond
from relaxjax._core._local import LocalState
from relaxjax._core._merge_rules import EQUAL, MEAN
from relaxjax._core._sharding import fitting
from relaxjax._core._tree import layout_of
from relaxjax.compression import Compressor
from relaxjax.local_updates._fragments import fragments_of
from relaxjax.local_updates._outer_step import (
    AnchorState,
    OuterStep,
    like,
    outer_gradient,
    outer_step,
)

_CALLER = "streaming_diloco"


class StreamingDilocoState(NamedTuple):
    """State of the outer half of `streaming_diloco`; lists have an entry a fragment.

    A fragment is a tree like the params, with `optax.MaskedNode` for others' leaves.

    Attributes:
      step: int32, steps since all fragments have met.
      kept: of each fragment's last outer step.
      sent: D_i of each, as last read; float32 where a param is narrower.
      leaves: those that differ between workers.
    """

    step: Annotated[jax.Array, EQUAL]
    kept: list[AnchorState]
    sent: Annotated[list[Any], MEAN]
    leaves: Annotated[LocalState, MEAN]


def streaming_diloco(
    inner: optax.GradientTransformation,
    axis_name: AxisName,
    sync_every: int,
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
    """DiLoCo whose model synchronises in parts, one at a time.

    Args:
      inner: each worker's optimizer, of its own gradients.
      axis_name: the axis, or a tuple (outer, inner).
      sync_every: H, steps from one outer step of a fragment to its next.
      fragments: P, of which H is a multiple.
      overlap: tau, steps from what is sent to what comes back, 0 to H / P - 1.
      mixing: alpha, in [0, 1]: how much of its own a worker keeps; 1 is all of it.
      fragment_of: from a leaf's name to its fragment, 0 to P - 1; None deals the leaves
        out by their size.
      outer: as of `relaxjax.diloco`, of each fragment by itself.
      compressor: as of `relaxjax.diloco`.
      algorithm: as of `relaxjax.all_reduce`.
      bucket_bytes: as of `relaxjax.all_reduce`.
      specs: as of `relaxjax.all_reduce`, of the whole model.
      seed: of random compressors.

    Returns:
      A gradient transformation, as of `relaxjax.diloco`.

    Raises:
      TypeError: in `init`: an outer optimizer that needs a loss or other arguments.
      ValueError: H or P below 1, H no multiple of P, an overlap of H / P or more, a
        mixing outside [0, 1]; in `init`: a fragment without leaves, or one that there
        is not; else as of `relaxjax.diloco`.
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
    every = _checked(sync_every, fragments, overlap, mixing)
    step_of = functools.partial(
        outer_step, _CALLER, axis_name, outer, compressor, algorithm, bucket_bytes, seed
    )
    step = step_of(specs)
    deal = functools.partial(
        fragments_of, _CALLER, count=fragments, fragment_of=fragment_of
    )
    fragment = functools.partial(_fragment, overlap, mixing)

    def init(params: optax.Params) -> Any:
        kept = [step.init(part) for part in deal(params).split(params)]
        sent = [optax.tree.zeros_like(one.anchor) for one in kept]
        marks = LocalState(layout_of(params))
        return StreamingDilocoState(jnp.zeros((), jnp.int32), kept, sent, marks)

    def update(updates, state, params=None, *, weight=None, **extra_args) -> Any:
        del extra_args
        step.require(state, updates, params, weight)
        dealt, count = deal(updates), state.step + 1
        left = [number * every - count for number in range(1, fragments + 1)]
        own = fitting(specs, updates, _CALLER)
        steps = [step_of(part) for part in dealt.split(own)]
        trees = dealt.split(updates), dealt.split(params), state.kept, state.sent
        found = [fragment(*part) for part in zip(left, steps, *trees, strict=True)]
        u, kept, sent = (list(parts) for parts in zip(*found, strict=True))
        state = StreamingDilocoState(count % sync_every, kept, sent, state.leaves)
        return dealt.join(u, updates), state

    outer_half = optax.GradientTransformationExtraArgs(init, update)
    return optax.with_extra_args_support(optax.chain(inner, outer_half))


def _fragment(
    tau: int,
    alpha: float,
    left: jax.Array,
    step: OuterStep,
    u: Any,
    x: Any,
    kept: AnchorState,
    sent: Any,
) -> tuple[Any, AnchorState, Any]:
    """A fragment's update, what is kept and what is sent, `left` steps before its T."""
    u, x = like(kept.anchor, u), like(kept.anchor, x)
    reads = functools.partial(jnp.where, left == tau)
    sent = jax.tree.map(reads, outer_gradient(kept.anchor, x, u), sent)

    def meet(u: Any, kept: AnchorState, sent: Any) -> tuple[Any, AnchorState]:
        kept = step.update(sent, kept)
        moved = jax.tree.map(
            lambda a, x, u: (1 - alpha) * (a - x) + alpha * u, kept.anchor, x, u
        )
        return moved, kept

    u, kept = cond(left == 0, meet, lambda u, kept, _: (u, kept), u, kept, sent)
    return u, kept, sent


def _checked(sync_every: int, fragments: int, overlap: int, mixing: float) -> int:
    """Steps from one fragment's outer step to the next one's."""
    require_whole(_CALLER, "sync_every", sync_every)
    require_whole(_CALLER, "fragments", fragments)
    require_whole(_CALLER, "overlap", overlap, 0)
    every, left = divmod(sync_every, fragments)
    if left:
        raise ValueError(
            f"{_CALLER}: sync_every={sync_every} must be a multiple of fragments="
            f"{fragments}, such as {fragments * (every + 1)}"
        )
    if overlap >= every:
        raise ValueError(
            f"{_CALLER}: overlap={overlap} must be below sync_every / fragments = "
            f"{every}: what is sent must be back before the next is"
        )
    if not 0 <= mixing <= 1:
        raise ValueError(
            f"{_CALLER}: mixing={mixing} must be in [0, 1]: 0 takes the common model, "
            "1 keeps one's own"
        )
    return every

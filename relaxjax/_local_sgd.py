"""Local steps: workers go their own ways and meet every `sync_every` steps.

Source: Local SGD (McMahan et al. 2017, Stich 2019). With a compressor of top-k and few
bits and decayed feedback, what SparseLoCo sends (Sarfi et al. 2025), without its outer
step size. Worker i holds x_i, its optimizer's update is u_i; a is the model of the last
meeting, equal on all workers:

    x_i <- x_i + u_i                                    (each step)
    a <- a + mean over the workers of C(x_i - a),  x_i <- a
                                                        (after it, each H-th step)

Without a compressor, C is the identity and a becomes the mean of the models. With one,
C is it and its feedback, in units of the model.

Each worker's optimizer state is its own and goes on through a meeting.

Cost: what `all_reduce` sends for the params in float32, once in H steps, and two
buffers of their size: the anchor a, and the feedback's. Under `jax.vmap`, so in
emulation, both branches run and one is selected: no time is saved.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from relaxjax._all_reduce import all_reduce
from relaxjax._axis import AxisName, axis_size
from relaxjax._dtypes import wide
from relaxjax._either import either
from relaxjax._layout import layout_of, require_params, require_same
from relaxjax._local import LocalState
from relaxjax._numbers import require_whole
from relaxjax._weights import refuse_weight
from relaxjax.compression import Compressor

_CALLER = "local_sgd"


class LocalSgdState(NamedTuple):
    """State of `local_sgd`.

    Attributes:
      step: int32, steps since the last meeting.
      anchor: the model of the last meeting, in float32 where a leaf is narrower.
      reducer: state of the `all_reduce` that averages the changes.
      leaves: those that differ between workers in between.
    """

    step: jax.Array
    anchor: optax.Params
    reducer: Any
    leaves: LocalState


def local_sgd(
    axis_name: AxisName,
    sync_every: int,
    *,
    compressor: Compressor | None = None,
    algorithm: str = "auto",
    bucket_bytes: int = 8 * 2**20,
    specs: Any = None,
    seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
    """Averages the workers' models every `sync_every` steps; silent in between.

    Put it last in the chain, after the optimizer, which then sees each worker's own
    gradient: what comes in is how this worker's params are to move, and what comes out
    is that, or in every `sync_every`-th step what moves them to the common model (to
    one rounding: params + (model - params) is not always model).

    Args:
      axis_name: the axis, or a tuple (outer, inner).
      sync_every: number of steps from one meeting to the next, 1 or more.
      compressor: of `relaxjax.compression`: what is sent is the compressed change
        since the last meeting, rather than the change. With `error_feedback`, what is
        lost in one meeting is sent in the next.
      algorithm: as of `relaxjax.all_reduce`, which sends the changes.
      bucket_bytes: as of `relaxjax.all_reduce`.
      specs: as of `relaxjax.all_reduce`.
      seed: of random compressors.

    Returns:
      A gradient transformation whose `update` needs `params`. Updates come out in
      float32 where a param is narrower (`optax.apply_updates` takes them so).

    Raises:
      ValueError: `sync_every < 1`; what `relaxjax.all_reduce` refuses; in `update`
        another tree than `init` saw, no `params`, or a `weight`.
      NameError: `update` outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp, optax, relaxjax
      >>> tx = optax.chain(optax.sgd(1.0), relaxjax.local_sgd("data", sync_every=2))
      >>> def train(gradient):
      ...     x = jnp.float32(0)
      ...     state = tx.init(x)
      ...     for _ in range(2):
      ...         updates, state = tx.update(gradient, state, x)
      ...         x = optax.apply_updates(x, updates)
      ...     return x
      >>> print(jax.vmap(train, axis_name="data")(jnp.array([1.0, 2.0, 6.0])))
      [-6. -6. -6.]
    """
    require_whole(_CALLER, "sync_every", sync_every)
    reducer = all_reduce(
        axis_name,
        algorithm=algorithm,
        compressor=compressor,
        bucket_bytes=bucket_bytes,
        specs=specs,
        seed=seed,
    )

    def init(params: optax.Params) -> Any:
        # A copy: the params themselves may be donated to the step.
        anchor = jax.tree.map(lambda p: jnp.array(p, wide(p.dtype)), params)
        marks = LocalState(layout_of(params))
        return LocalSgdState(
            jnp.zeros((), jnp.int32), anchor, reducer.init(anchor), marks
        )

    def update(updates, state, params=None, *, weight=None, **extra_args) -> Any:
        del extra_args
        axis_size(axis_name, _CALLER)
        require_params(params, _CALLER, "which it averages")
        refuse_weight(weight, _CALLER)
        require_same(state.leaves.layout, updates, _CALLER)
        step, anchor, reduced, leaves = state
        u, x = (
            jax.tree.map(lambda a, y: y.astype(a.dtype), anchor, tree)
            for tree in (updates, params)
        )
        last = step == sync_every - 1
        meet = functools.partial(_meet, reducer, x)
        u, anchor, reduced = either(last, meet, lambda *own: own, u, anchor, reduced)
        step = jnp.where(last, 0, step + 1)
        return u, LocalSgdState(step, anchor, reduced, leaves)

    return optax.GradientTransformationExtraArgs(init, update)


def _meet(reducer: Any, x: Any, u: Any, anchor: Any, reduced: Any) -> Any:
    """To the common model: the update, the anchor, the reducer's state."""
    change = jax.tree.map(lambda x, u, a: x + u - a, x, u, anchor)
    mean, reduced = reducer.update(change, reduced)
    anchor = jax.tree.map(jnp.add, anchor, mean)
    return jax.tree.map(jnp.subtract, anchor, x), anchor, reduced

"""0/1 Adam: momentum in one bit, averaged over rounds of local steps.

Source: Lu et al. 2022 (0/1 Adam), algorithm 1; bias correction and decoupled weight
decay as in AdamW (Loshchilov and Hutter 2019). On worker i in step t, with k the number
of variance updates so far, T = `freeze_step`, and a the params at the last
synchronization:

    t <= T, at some steps:   v = b2 v + (1 - b2) mean_i(g_i)^2,  k = k + 1
    m_i = b1 m_i + (1 - b1) g_i
    w_t = lr_t / (1 - b1^t),  u_i = u_i + w_t m_i,  W = W + w_t,  R = R + lr_t
    D = sqrt(v^) + eps,      v^ = v / (1 - b2^k)
    if t synchronizes:       m = D mean_i(C(u_i / (W D))), with what C loses fed back
                             m_i = m,  u_i = W m
    x_i = a - u_i / D - R weight_decay a
    if t synchronizes:       a = x_i,  u_i = W = R = 0

Until T every step synchronizes, and v is refreshed at intervals of 1, 1, .. 2, 2, .. 4
.. steps; after T steps synchronize at intervals of 1, 2, 4 .. and v stays. Weights
decay by the anchor a, so that all workers hold the same params after each
synchronization. Where v is 0, no gradient has been seen at a refresh: such elements do
not move.

A worker counts in a round's mean by the sum of its weights; in a step of weight zero it
goes on with its momentum. Where nobody has an example, m stays.

The paper sends u_i; here the average step u_i / (W D) travels, for two reasons. What is
lost of u_i is as large as the learning rate was, and where the rate falls, m = u / W
makes it large: infinitely, where a schedule touches 0. And one scale of signs for all
momenta throws elements of small D far away, in the first steps above all. As long as W
and D stay, what is sent and fed back says the same.

Cost: that of the compressor at each synchronization (1/32 of all_reduce with signs, and
psum for vectors and scalars), of all_reduce at each refresh of v; in between nothing.
State: m, v, u, a and the residual, each of the gradient's size.
"""

from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from relaxjax._core._arrays import require_dtypes
from relaxjax._core._axis import AxisName
from relaxjax._core._checks import require_params, require_whole
from relaxjax._core._cond import when
from relaxjax._core._merge_rules import EQUAL, MEAN
from relaxjax._core._phases import Clock, clock, phased
from relaxjax._core._weights import unless_absent, unless_nobody
from relaxjax._core.traced._marks import marked
from relaxjax.compression import Compressor
from relaxjax.gradients.adaptive._one_bit_adam import (
    denominator,
    mask_unseen,
    mean_of_steps,
)
from relaxjax.gradients.adaptive._zero_one_schedule import (
    Round,
    Variance,
    accumulate_step,
    new_round,
    new_variance,
    refresh_variance,
    round_is_over,
)
from relaxjax.gradients.mean._all_reduce import mean_over_workers
from relaxjax.gradients.mean._matrices_only import compress_matrices

_CALLER = "zero_one_adam"


class ZeroOneAdamState(NamedTuple):
    """State of `zero_one_adam`.

    Attributes:
      clock: steps taken; in phase 0 all synchronize, in phase 1 v is frozen.
      mu: m_i, float32, like the params.
      variance: v, and when it is refreshed.
      anchor: a, float32, like the params, equal on all workers.
      round: the steps since the last synchronization.
      exchange: state of the compressed exchange, with the residuals.
    """

    clock: Clock
    mu: Annotated[Any, MEAN]
    variance: Variance
    anchor: Annotated[Any, EQUAL]
    round: Round
    exchange: Any


def zero_one_adam(
    axis_name: AxisName,
    learning_rate: optax.ScalarOrSchedule,
    *,
    freeze_step: int,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 1e-4,
    variance_doubling: int = 16,
    local_doubling: int = 32768,
    most_local_steps: int = 16,
    compressor: Compressor | None = None,
    specs: Any = None,
) -> optax.GradientTransformationExtraArgs:
    """AdamW over the workers, in one bit per element, from some steps only.

    Use it instead of an all-reduce and `optax.adamw`, as the last of a chain: it moves
    the params to their targets, from wherever they are. It takes each worker's own
    gradients. Between synchronizations the workers' params differ. Step T begins a new
    phase (`relaxjax.advance_phases`).

    Args:
      axis_name: the axis, or a tuple (outer, inner).
      learning_rate: a number, or a schedule of the step.
      freeze_step: T, steps before the variance is frozen and local steps begin.
      b1: decay of the momentum.
      b2: decay of the variance, per refresh.
      eps: added to the square root of the variance.
      weight_decay: strength of weight decay, as in `optax.adamw`.
      variance_doubling: number of refreshes of the variance after which their interval
        doubles.
      local_doubling: number of steps after T after which the interval of
        synchronizations doubles.
      most_local_steps: the largest such interval.
      compressor: the average step's compressor; None is `error_feedback(sign())`.
        Vectors and scalars travel as they are.
      specs: as in `relaxjax.all_reduce`.

    Returns:
      An optimizer for real floating leaves. Its updates are float32, so that params of
      16 bits land on what the anchor rounds to. Its `update` needs the params and takes
      `weight=`.

    Raises:
      ValueError: a number of steps is below 1; in `init`: no leaf has two dimensions,
        so that nothing would be compressed; in `update`: params are missing.
      NameError: `update` outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp, relaxjax
      >>> tx = relaxjax.zero_one_adam("data", 1.0, freeze_step=100)
      >>> update = lambda g: tx.update(g, tx.init(g), g)[0]
      >>> gradients = jnp.stack([jnp.ones((2, 2)), -3 * jnp.ones((2, 2))])
      >>> print(jax.vmap(update, axis_name="data")(gradients)[0].round(2))
      [[1. 1.]
       [1. 1.]]
    """
    require_whole(_CALLER, "freeze_step", freeze_step)
    require_whole(_CALLER, "variance_doubling", variance_doubling)
    require_whole(_CALLER, "local_doubling", local_doubling)
    require_whole(_CALLER, "most_local_steps", most_local_steps)
    mean = mean_over_workers(axis_name, specs=specs)
    reduce = compress_matrices(axis_name, compressor, specs=specs)
    rate = learning_rate if callable(learning_rate) else lambda _: learning_rate

    def init(params: optax.Params) -> Any:
        require_dtypes(params, _CALLER, "it")
        m, v, u = (optax.tree.zeros_like(params, dtype=jnp.float32) for _ in range(3))
        anchor = jax.tree.map(lambda x: jnp.array(x, jnp.float32), params)
        state = clock(freeze_step), m, new_variance(v), anchor, new_round(u)
        return ZeroOneAdamState(*state, reduce.init(u))

    def update(updates, state, params=None, *, weight=None, **extra_args) -> Any:
        del extra_args
        require_params(params, _CALLER, "which it moves to their targets")
        g = optax.tree.cast(updates, jnp.float32)
        time, m, variance, anchor, now, exchange = state
        lock_step = time.phase == 0
        if lock_step:
            variance = refresh_variance(
                variance, lambda: mean(g, weight), b2, variance_doubling
            )
        v = variance.nu
        g = unless_absent(weight, g, m)  # without examples it goes on with its momentum
        m = mask_unseen(v, optax.tree.update_moment(g, m, b1, 1))
        corrected = 1 - b1 ** (time.count + 1)
        now = accumulate_step(now, m, rate(time.count), corrected, weight)
        done = time.count - freeze_step
        due = lock_step or round_is_over(now, done, local_doubling, most_local_steps)
        d = denominator(v, b2, variance.renewals, eps)

        def synchronize(before):
            u, m, exchange = before
            steps = jax.tree.map(lambda u, d: u / (now.weight * d), u, d)
            examples = None if weight is None else now.examples
            mean, exchange = mean_of_steps(reduce, v, steps, d, exchange, examples)
            m = unless_nobody(examples, axis_name, mean, m)
            return optax.tree.scale(now.weight, m), m, exchange

        u, m, exchange = when(due, synchronize, (now.moved, m, exchange))
        now = now._replace(moved=u)
        out, anchor, now = _move(due, anchor, now, d, weight_decay, params)
        return out, ZeroOneAdamState(time.tick(), m, variance, anchor, now, exchange)

    return marked(_CALLER, "models", axis_name, init, phased(update))


def _move(
    due: bool | jax.Array, a: Any, now: Round, d: Any, decay: float, params: Any
) -> tuple[Any, Any, Round]:
    """The updates to x_i, and the next anchor and round."""
    x = jax.tree.map(lambda a, u, d: a - u / d - now.rate * decay * a, a, now.moved, d)
    out = jax.tree.map(lambda x, p: x - p.astype(jnp.float32), x, params)
    fresh = new_round(optax.tree.zeros_like(now.moved))
    return out, optax.tree.where(due, x, a), optax.tree.where(due, fresh, now)

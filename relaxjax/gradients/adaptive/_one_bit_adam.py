"""1-bit Adam: the variance is frozen, then momentum travels in one bit.

Source: Tang et al. 2021 (1-bit Adam), algorithm 1; bias correction and decoupled weight
decay as in AdamW (Loshchilov and Hutter 2019). On worker i, with T = `freeze_step`:

    t <= T:  g = mean_i(g_i),  m = b1 m + (1 - b1) g,  v = b2 v + (1 - b2) g^2
    t > T:   m_i = b1 m + (1 - b1) g_i
             m = D mean_i(C(m_i / D)), with what C loses fed back
    always:  m^ = m / (1 - b1^t),  v^ = v / (1 - b2^min(t, T)),  D = sqrt(v^) + eps
             x = x - lr (m^ / D + weight_decay x)

Until T this is AdamW. The paper sends C(m_i); here it is steps of about one size that
travel, m_i / D: a bit says +1 or -1 of every element, with one scale for many, which
would throw elements of small D far away (seen: images, of which some pixels are nearly
always dark). From T on D stays, so that what is lost keeps its unit.

Where v is 0 at T, no worker has ever seen a gradient: what one bit says there is noise,
which eps would blow up. Such elements neither travel nor move.

Cost: that of all_reduce until T; then of the compressor, 1/32 of that with signs, and
psum for vectors and scalars. State: m, v and the residual, each of the gradient's size.
"""

from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from relaxjax._core._arrays import require_dtypes
from relaxjax._core._axis import AxisName
from relaxjax._core._checks import require_params, require_whole
from relaxjax._core._merge_rules import EQUAL
from relaxjax._core._phases import Clock, clock, phased
from relaxjax._core._weights import unless_nobody
from relaxjax._core.traced._marks import marked
from relaxjax.compression import Compressor
from relaxjax.gradients.mean._all_reduce import mean_over_workers
from relaxjax.gradients.mean._matrices_only import compress_matrices


class OneBitAdamState(NamedTuple):
    """State of `one_bit_adam`.

    Attributes:
      clock: steps taken; phase 0 is Adam, in phase 1 momentum travels compressed.
      mu: m, float32, like the params, equal on all workers.
      nu: v, the same.
      exchange: state of the compressed exchange, with the residuals.
    """

    clock: Clock
    mu: Annotated[Any, EQUAL]
    nu: Annotated[Any, EQUAL]
    exchange: Any


def one_bit_adam(
    axis_name: AxisName,
    learning_rate: optax.ScalarOrSchedule,
    *,
    freeze_step: int,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 1e-4,
    mask: Any = None,
    compressor: Compressor | None = None,
    specs: Any = None,
) -> optax.GradientTransformationExtraArgs:
    """AdamW over the workers, whose momentum travels in one bit per element.

    Use it instead of an all-reduce and `optax.adamw`; it takes each worker's own
    gradients. Step T begins a new phase (`relaxjax.advance_phases`).

    Args:
      axis_name: the axis, or a tuple (outer, inner).
      learning_rate: a number, or a schedule of the step.
      freeze_step: T, steps of plain AdamW before the variance is frozen; 15 to 25 % of
        training, and not less than the learning rate's warm-up, is usual.
      b1: decay of the momentum.
      b2: decay of the variance.
      eps: added to the square root of the variance.
      weight_decay: strength of weight decay, as in `optax.adamw`.
      mask: mask of weight decay, as in `optax.adamw`.
      compressor: the momentum's compressor; None is `error_feedback(sign())`. Vectors
        and scalars travel as they are.
      specs: as in `relaxjax.all_reduce`.

    Returns:
      An optimizer for real floating leaves, computed in float32, that leaves all
      workers with the same updates. Its `update` needs the params and takes `weight=`.

    Raises:
      ValueError: `freeze_step < 1`, or a number that `optax.adamw` would refuse; in
        `init`: no leaf has two dimensions, so that nothing would be compressed; in
        `update`: params are missing.
      NameError: `update` outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp, relaxjax
      >>> tx = relaxjax.one_bit_adam("data", 1.0, freeze_step=100)
      >>> update = lambda g: tx.update(g, tx.init(g), g)[0]
      >>> gradients = jnp.stack([jnp.ones((2, 2)), -3 * jnp.ones((2, 2))])
      >>> print(jax.vmap(update, axis_name="data")(gradients)[0].round(2))
      [[1. 1.]
       [1. 1.]]
    """
    require_whole("one_bit_adam", "freeze_step", freeze_step)
    mean = mean_over_workers(axis_name, specs=specs)
    reduce = compress_matrices(axis_name, compressor, specs=specs)

    def init(params: optax.Params) -> Any:
        require_dtypes(params, "one_bit_adam", "it")
        m, v = (optax.tree.zeros_like(params, dtype=jnp.float32) for _ in range(2))
        return OneBitAdamState(clock(freeze_step), m, v, reduce.init(m))

    def update(updates, state, params=None, *, weight=None, **extra_args) -> Any:
        del extra_args
        require_params(params, "one_bit_adam", "by which weights decay")
        g = optax.tree.cast(updates, jnp.float32)
        time, m, v, exchange = state
        if time.phase == 0:
            g = mean(g, weight)
            m = optax.tree.update_moment(g, m, b1, 1)
            v = optax.tree.update_moment(g, v, b2, 2)
        else:
            d = denominator(v, b2, freeze_step, eps)
            steps = optax.tree.div(optax.tree.update_moment(g, m, b1, 1), d)
            alone = optax.tree.scale(b1, m)  # of a step without any gradient
            m, exchange = mean_of_steps(reduce, v, steps, d, exchange, weight)
            m = unless_nobody(weight, axis_name, m, alone)
        time = time.tick()
        m_hat = optax.tree.bias_correction(m, b1, time.count)
        d = denominator(v, b2, jnp.minimum(time.count, freeze_step), eps)
        out = optax.tree.cast_like(optax.tree.div(m_hat, d), updates)
        return out, OneBitAdamState(time, m, v, exchange)

    return optax.chain(
        marked("one_bit_adam", "optimizer", axis_name, init, phased(update)),
        optax.add_decayed_weights(weight_decay, mask),
        optax.scale_by_learning_rate(learning_rate),
    )


def mean_of_steps(
    reduce: optax.GradientTransformationExtraArgs,
    v: Any,
    steps: Any,
    unit: Any,
    exchange: Any,
    weight: Any,
) -> tuple[Any, Any]:
    """The compressed mean of steps times their unit, 0 where v is, and the state."""
    steps, exchange = reduce.update(mask_unseen(v, steps), exchange, weight=weight)
    return mask_unseen(v, optax.tree.mul(unit, steps)), exchange


def mask_unseen(v: Any, tree: Any) -> Any:
    """A tree like v, with zeros where no gradient has been."""
    return jax.tree.map(lambda v, x: jnp.where(v == 0, 0, x), v, tree)


def denominator(v: Any, b2: float, count: Any, eps: float) -> Any:
    """D = sqrt(v^) + eps, with v^ = v / (1 - b2^count)."""
    v_hat = optax.tree.bias_correction(v, b2, jnp.asarray(count))
    return jax.tree.map(lambda v: jnp.sqrt(v) + eps, v_hat)

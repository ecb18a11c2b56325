"""1-bit Adam: the variance is frozen, then momentum travels in one bit.

Source: Tang et al. 2021 (1-bit Adam), algorithm 1; bias correction and decoupled weight
decay as in AdamW (Loshchilov and Hutter 2019). On worker i, with T = `freeze_step`:

    t <= T:  g = mean_i(g_i),  m = b1 m + (1 - b1) g,  v = b2 v + (1 - b2) g^2
    t > T:   m_i = b1 m + (1 - b1) g_i
             m = D mean_i(C(m_i / D)), with what C loses fed back
    always:  m^ = m / (1 - b1^t),  v^ = v / (1 - b2^min(t, T)),  D = sqrt(v^) + eps
             x = x - lr (m^ / D + weight_decay x)

Until T this is AdamW. The paper sends C(m_i); here it is steps that travel, m_i / D,
since one scale of signs for all momenta throws elements of small D far away (seen:
images, of which some pixels are nearly always dark). From T on D stays, so that what is
lost keeps its unit.

Where v is 0 at T, no worker has ever seen a gradient: what one bit says there is noise,
which eps would blow up. Such elements neither travel nor move.

Cost: of all_reduce until T; then of the compressor, 1/32 of that with signs, and psum
for vectors and scalars. State: m, v and the residual, each of the gradient's size.

What momentum in one bit asks of a variance v that stays.

One bit says +1 or -1 of every element, with one scale for many. So what travels is
m / D with D = sqrt(v^) + eps, steps of about one size, and not m: elements whose D is
small would be thrown far away (seen: images, of which some pixels are nearly always
dark).

Where v is 0, no worker has ever seen a gradient: what one bit says there is noise,
which eps would blow up.
"""

from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from relaxjax._core._axis import AxisName
from relaxjax._core._checks import require_dtypes, require_whole
from relaxjax._core._merge_rules import EQUAL
from relaxjax._core._phases import Clock, clock
from relaxjax._core._tree import require_params
from relaxjax.compression import Compressor
from relaxjax.gradients._all_reduce import all_reduce
from relaxjax.gradients._matrices_only import compress_matrices


class OneBitAdamState(NamedTuple):
    """State of `one_bit_adam`.

    Attributes:
      clock: steps taken; phase 0 is Adam, in phase 1 momentum travels compressed.
      mu: m, float32, like the params, equal on all workers.
      nu: v, the same.
      exchange: of the compressed exchange, with the residuals.
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
    gradients. The switch is one of phases (`relaxjax.advance_phases`).

    Args:
      axis_name: the axis, or a tuple (outer, inner).
      learning_rate: a number, or a schedule of the step.
      freeze_step: T, steps of plain AdamW before the variance is frozen; 15 to 25 % of
        training, and not less than the learning rate's warm-up, is usual.
      b1: decay of the momentum.
      b2: decay of the variance.
      eps: added to the square root of the variance.
      weight_decay: strength, as of `optax.adamw`.
      mask: of weight decay, as of `optax.adamw`.
      compressor: of the momentum; None is `error_feedback(sign())`. Vectors and scalars
        travel as they are.
      specs: as of `relaxjax.all_reduce`.

    Returns:
      An optimizer for real floating leaves, computed in float32, that leaves all
      workers with the same updates. Its `update` needs the params and takes `weight=`.

    Raises:
      ValueError: `freeze_step < 1`, or a number that `optax.adamw` would refuse; in
        `init`: no leaf of two dimensions, so that nothing would be compressed; in
        `update`: no params.
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
    return optax.chain(
        _scale_by_one_bit_adam(axis_name, freeze_step, b1, b2, eps, compressor, specs),
        optax.add_decayed_weights(weight_decay, mask),
        optax.scale_by_learning_rate(learning_rate),
    )


def _scale_by_one_bit_adam(
    axis_name: AxisName,
    freeze_step: int,
    b1: float,
    b2: float,
    eps: float,
    compressor: Compressor | None,
    specs: Any,
) -> optax.GradientTransformationExtraArgs:
    """From each worker's gradients to m^ / (sqrt(v^) + eps), the same on all."""
    require_whole("one_bit_adam", "freeze_step", freeze_step)
    exact = all_reduce(axis_name, specs=specs)
    exchange = compress_matrices(axis_name, compressor, specs=specs)

    def init(params: optax.Params) -> Any:
        require_dtypes(params, "one_bit_adam", "it")
        m, v = (optax.tree.zeros_like(params, dtype=jnp.float32) for _ in range(2))
        return OneBitAdamState(clock(freeze_step), m, v, exchange.init(m))

    def update(updates, state, params=None, *, weight=None, **extra_args) -> Any:
        del extra_args
        require_params(params, "one_bit_adam", "by which weights decay")
        g = optax.tree.cast(updates, jnp.float32)
        time, m, v, kept = state
        if time.phase == 0:
            g, _ = exact.update(g, exact.init(g), weight=weight)
            m = optax.tree.update_moment(g, m, b1, 1)
            v = optax.tree.update_moment(g, v, b2, 2)
        else:
            d = denominator(v, b2, freeze_step, eps)
            steps = jax.tree.map(jnp.divide, optax.tree.update_moment(g, m, b1, 1), d)
            steps, kept = exchange.update(mask_unseen(v, steps), kept, weight=weight)
            m = mask_unseen(v, jax.tree.map(jnp.multiply, d, steps))
        time = time.tick()
        m_hat = optax.tree.bias_correction(m, b1, time.count)
        d = denominator(v, b2, jnp.minimum(time.count, freeze_step), eps)
        out = jax.tree.map(lambda u, m, d: (m / d).astype(u.dtype), updates, m_hat, d)
        return out, OneBitAdamState(time, m, v, kept)

    return optax.GradientTransformationExtraArgs(init, update)


def mask_unseen(v: Any, tree: Any) -> Any:
    """A tree like v, with zeros where no gradient has been."""
    return jax.tree.map(lambda v, x: jnp.where(v == 0, 0, x), v, tree)


def denominator(v: Any, b2: float, count: Any, eps: float) -> Any:
    """D = sqrt(v^) + eps, with v^ = v / (1 - b2^count)."""
    v_hat = optax.tree.bias_correction(v, b2, count)
    return jax.tree.map(lambda v: jnp.sqrt(v) + eps, v_hat)

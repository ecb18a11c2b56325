"""1-bit LAMB: momentum in one bit, at layer-wise rates that go on adapting.

Source: Li et al. 2021 (1-bit LAMB), algorithm 1; LAMB as in You et al. 2020, with bias
correction and decoupled weight decay. On worker i, for each layer, T = `freeze_step`:

    t <= T:  g = mean_i(g_i),  m = b1 m + (1 - b1) g,  v = f = b2 v + (1 - b2) g^2
             s = (mean of RMS(m / D) over the layers) / RMS(m / D)
    t > T:   m_i = b1 m + (1 - b1) g_i
             m' = D mean_i(C(s m_i / D)) / s, with what C loses fed back;  m = m' then
             f = b2 f + (1 - b2) g~^2,  g~ = (m' - b1 m) / (1 - b1)
    always:  m^ = m / (1 - b1^t),  v^ = v / (1 - b2^min(t, T)),  f^ = f / (1 - b2^t)
             D = sqrt(v^) + eps,  u = m^ / D + weight_decay x
    t <= T:  q = |x| / |u|,  c = moving average of q,  x = x - lr q u
    t > T:   r = max over elements of D / (sqrt(f^) + eps), clipped
             x = x - lr r c u

Until T this is LAMB. By s and D, one sign's scale fits all layers and elements (the
paper, without D, sends s m_i). g~ is the mean gradient that the workers have in common,
and f the variance if it were not frozen. Elements whose v is 0 at T neither travel nor
move.

Cost: that of all_reduce until T; then of the compressor, 1/32 of that with signs, and
psum for vectors and scalars. State: m, v, f and the residual, each of the gradient's
size.
"""

import math
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from relaxjax._core._arrays import require_dtypes
from relaxjax._core._axis import AxisName
from relaxjax._core._checks import require_params, require_whole
from relaxjax._core._merge_rules import EQUAL
from relaxjax._core._phases import Clock, clock, phased
from relaxjax._core._weights import unless_nobody
from relaxjax._core.layouts._sharding import parts_over
from relaxjax._core.traced._marks import marked
from relaxjax.compression import Compressor
from relaxjax.gradients.adaptive._one_bit_adam import denominator, mean_of_steps
from relaxjax.gradients.adaptive._trust_ratio import (
    LayerRates,
    TrustRatioSpec,
    check_trust_ratio,
    first_rates,
    frozen_ratio,
    norms,
    record_ratio,
)
from relaxjax.gradients.mean._all_reduce import mean_over_workers
from relaxjax.gradients.mean._matrices_only import compress_matrices


class OneBitLambState(NamedTuple):
    """State of `one_bit_lamb`.

    Attributes:
      clock: steps taken; phase 0 is LAMB, in phase 1 momentum travels compressed.
      mu: m, float32, like the params, equal on all workers.
      nu: v, the same.
      fresh: f, the same.
      scale: s, one number for each leaf.
      rates: c (before bias correction) and r, the same.
      decay: state of the weight decay.
      exchange: state of the compressed exchange, with the residuals.
    """

    clock: Clock
    mu: Annotated[Any, EQUAL]
    nu: Annotated[Any, EQUAL]
    fresh: Annotated[Any, EQUAL]
    scale: Annotated[Any, EQUAL]
    rates: LayerRates
    decay: Any
    exchange: Any


def one_bit_lamb(
    axis_name: AxisName,
    learning_rate: optax.ScalarOrSchedule,
    *,
    freeze_step: int,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-6,
    weight_decay: float = 0.0,
    mask: Any = None,
    coefficient_decay: float = 0.9,
    factor_bounds: tuple[float, float] = (0.5, 4.0),
    factor_change: float = 0.1,
    coefficient_bounds: tuple[float, float] = (0.01, 10.0),
    compressor: Compressor | None = None,
    specs: Any = None,
) -> optax.GradientTransformationExtraArgs:
    """LAMB over the workers, whose momentum travels in one bit per element.

    Use it instead of an all-reduce and `optax.lamb`; it takes each worker's own
    gradients. Step T begins a new phase (`relaxjax.advance_phases`).

    Args:
      axis_name: the axis, or a tuple (outer, inner).
      learning_rate: a number, or a schedule of the step.
      freeze_step: T, steps of plain LAMB before the variance is frozen; 15 to 25 % of
        training, and not less than the learning rate's warm-up, is usual.
      b1: decay of the momentum.
      b2: decay of the variance.
      eps: added to the square root of the variance.
      weight_decay: strength of weight decay, as in `optax.lamb`.
      mask: mask of weight decay, as in `optax.lamb`.
      coefficient_decay: decay of the moving average c.
      factor_bounds: the least and the most that r may be; 1 lies between.
      factor_change: largest change of r in one step, relative to its last value.
      coefficient_bounds: bounds of q where it is averaged (not where it is used until
        T).
      compressor: the momentum's compressor; None is `error_feedback(sign())`. Vectors
        and scalars travel as they are.
      specs: as in `relaxjax.all_reduce`.

    Returns:
      An optimizer for real floating leaves, computed in float32, that leaves all
      workers with the same updates. Its `update` needs the params and takes `weight=`.

    Raises:
      ValueError: `freeze_step < 1`, bounds out of order, `coefficient_decay` outside
        [0, 1), `factor_change < 0`; in `init`: no leaf has two dimensions, so that
        nothing would be compressed; in `update`: params are missing.
      NameError: `update` outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp, relaxjax
      >>> tx = relaxjax.one_bit_lamb("data", 0.5, freeze_step=100)
      >>> params = jnp.full((2, 2), 8.0)
      >>> update = lambda g: tx.update(g, tx.init(params), params)[0]
      >>> gradients = jnp.stack([jnp.ones((2, 2)), -3 * jnp.ones((2, 2))])
      >>> print(jax.vmap(update, axis_name="data")(gradients)[0].round(2))
      [[4. 4.]
       [4. 4.]]
    """
    require_whole("one_bit_lamb", "freeze_step", freeze_step)
    spec = TrustRatioSpec(
        coefficient_decay, coefficient_bounds, factor_bounds, factor_change
    )
    check_trust_ratio("one_bit_lamb", spec)
    numbers = b1, b2, eps
    decay = optax.add_decayed_weights(weight_decay, mask)
    mean = mean_over_workers(axis_name, specs=specs)
    reduce = compress_matrices(axis_name, compressor, specs=specs)

    def init(params: optax.Params) -> Any:
        require_dtypes(params, "one_bit_lamb", "it")
        m, v, f = (optax.tree.zeros_like(params, dtype=jnp.float32) for _ in range(3))
        s = jax.tree.map(lambda _: jnp.ones((), jnp.float32), params)
        rest = first_rates(params), decay.init(params), reduce.init(m)
        return OneBitLambState(clock(freeze_step), m, v, f, s, *rest)

    def update(updates, state, params=None, *, weight=None, **extra_args) -> Any:
        del extra_args
        require_params(params, "one_bit_lamb", "whose norms set the rates")
        trees: tuple[Any, Any] = updates, params
        g, x = (optax.tree.cast(tree, jnp.float32) for tree in trees)
        time = state.clock.tick()
        if time.phase == 0:
            state = _warm(mean(g, weight), state, numbers, specs)
        else:
            state = _frozen(g, state, numbers, freeze_step, reduce, weight, axis_name)
        m_hat = optax.tree.bias_correction(state.mu, b1, time.count)
        old = denominator(state.nu, b2, jnp.minimum(time.count, freeze_step), eps)
        u, decayed = decay.update(optax.tree.div(m_hat, old), state.decay, x)
        if time.phase == 0:
            scale, rates = record_ratio(state.rates, x, u, spec, specs)
        else:
            new = denominator(state.fresh, b2, time.count, eps)
            scale, rates = frozen_ratio(
                state.rates, state.nu, old, new, freeze_step, spec, specs
            )
        out = optax.tree.cast_like(optax.tree.mul(scale, u), updates)
        return out, state._replace(clock=time, rates=rates, decay=decayed)

    return optax.chain(
        marked("one_bit_lamb", "optimizer", axis_name, init, phased(update)),
        optax.scale_by_learning_rate(learning_rate),
    )


def _warm(
    g: Any, state: OneBitLambState, numbers: tuple[float, float, float], specs: Any
) -> OneBitLambState:
    """m, v, f and s with the mean gradient g, until T."""
    b1, b2, eps = numbers
    m = optax.tree.update_moment(g, state.mu, b1, 1)
    v = optax.tree.update_moment(g, state.nu, b2, 2)
    d = denominator(v, b2, state.clock.count + 1, eps)
    s = _to_one_size(optax.tree.div(m, d), specs)
    return state._replace(mu=m, nu=v, fresh=v, scale=s)


def _frozen(
    g: Any,
    state: OneBitLambState,
    numbers: tuple[float, float, float],
    freeze_step: int,
    reduce: optax.GradientTransformationExtraArgs,
    weight: Any,
    axis_name: AxisName,
) -> OneBitLambState:
    """m and f with this worker's gradient g, after T."""
    b1, b2, eps = numbers
    unit = optax.tree.div(denominator(state.nu, b2, freeze_step, eps), state.scale)
    steps = optax.tree.div(optax.tree.update_moment(g, state.mu, b1, 1), unit)
    m, exchange = mean_of_steps(reduce, state.nu, steps, unit, state.exchange, weight)
    m = unless_nobody(weight, axis_name, m, optax.tree.scale(b1, state.mu))
    g = jax.tree.map(lambda new, old: (new - b1 * old) / (1 - b1), m, state.mu)
    f = optax.tree.update_moment(g, state.fresh, b2, 2)
    return state._replace(mu=m, fresh=f, exchange=exchange)


def _to_one_size(m: Any, specs: Any) -> Any:
    """The factor that brings each leaf to the mean size of all; 1 where it is zero."""
    leaves, tree = jax.tree.flatten(norms(m, specs))
    counts = [
        x.size * math.prod(map(lax.axis_size, axes))
        for x, axes in zip(jax.tree.leaves(m), parts_over(m, specs), strict=True)
    ]
    each = zip(leaves, counts, strict=True)
    sizes = tree.unflatten(norm / max(1, count) ** 0.5 for norm, count in each)
    mean = sum(jax.tree.leaves(sizes)) / max(1, len(jax.tree.leaves(sizes)))
    return jax.tree.map(lambda size: jnp.where(size == 0, 1, mean / size), sizes)

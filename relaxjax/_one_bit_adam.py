"""1-bit Adam: the variance is frozen, then momentum travels in one bit.

Source: Tang et al. 2021 (1-bit Adam), algorithm 1, with the bias correction and the
decoupled weight decay of AdamW (Loshchilov and Hutter 2019). On every worker i:

    until step T (`freeze_step`), Adam:
        g = mean_i(g_i),  m = b1 m + (1 - b1) g,  v = b2 v + (1 - b2) g^2
    then, with v as it is:
        m_i = b1 m + (1 - b1) g_i
        m   = mean of the compressed m_i    (two-way error feedback)
    always:
        x <- x - lr (m^ / (sqrt(v^) + eps) + wd x)
        m^ = m / (1 - b1^t),  v^ = v / (1 - b2^min(t, T))

Where v is 0, no worker has seen a gradient before T. What one bit says there is noise
and would be divided by eps: such elements neither travel nor move.

Cost: of all_reduce before T; after it of the compressor (1/32 with signs), and psum for
vectors and scalars. State: m, v and the residual, each of the gradient's size.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from relaxjax._all_reduce import all_reduce
from relaxjax._axis import AxisName
from relaxjax._clock import Clock, clock
from relaxjax._compress_matrices import compress_matrices
from relaxjax.compression import Compressor, error_feedback, sign

Rate = float | Callable[[Any], Any]


class OneBitAdamState(NamedTuple):
    """State of `one_bit_adam`.

    Attributes:
      clock: steps taken; phase 0 is Adam, in phase 1 momentum travels compressed.
      mu: m, float32, like the params, equal on all workers.
      nu: v, the same.
      exchange: the compressed exchange's, with the residuals.
    """

    clock: Clock
    mu: Any
    nu: Any
    exchange: Any


def one_bit_adam(
    axis_name: AxisName,
    learning_rate: Rate,
    *,
    freeze_step: int,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    compressor: Compressor | None = None,
    specs: Any = None,
) -> optax.GradientTransformationExtraArgs:
    """Adam over the workers, whose momentum travels in one bit per element."""
    exact = all_reduce(axis_name, specs=specs)
    exchange = compress_matrices(
        axis_name, compressor or error_feedback(sign()), specs=specs
    )

    def init(params: optax.Params) -> Any:
        zeros = jax.tree.map(lambda p: jnp.zeros_like(p, jnp.float32), params)
        state = clock(freeze_step), zeros, zeros
        return OneBitAdamState(*state, exchange.init(zeros))

    def update(updates, state, params=None, *, weight=None, **extra_args):
        del extra_args
        now = state.clock.tick()
        g = jax.tree.map(lambda u: u.astype(jnp.float32), updates)
        if state.clock.phase == 0:
            g, _ = exact.update(g, exact.init(g), weight=weight)
            mu = optax.tree.update_moment(g, state.mu, b1, 1)
            nu = optax.tree.update_moment(g, state.nu, b2, 2)
            kept = state.exchange
        else:
            nu = state.nu
            own = optax.tree.update_moment(g, state.mu, b1, 1)
            mu, kept = exchange.update(_seen(own, nu), state.exchange, weight=weight)
            mu = _seen(mu, nu)
        frozen = jnp.minimum(now.count, freeze_step)
        m_hat = optax.tree.bias_correction(mu, b1, now.count)
        v_hat = optax.tree.bias_correction(nu, b2, frozen)
        lr = (
            learning_rate(state.clock.count)
            if callable(learning_rate)
            else learning_rate
        )

        def out(m, v, p, u):
            step = m / (jnp.sqrt(v) + eps)
            if weight_decay:
                step = step + weight_decay * p
            return (-lr * step).astype(u.dtype)

        new = jax.tree.map(
            out, m_hat, v_hat, params if weight_decay else m_hat, updates
        )
        return new, OneBitAdamState(now, mu, nu, kept)

    return optax.GradientTransformationExtraArgs(init, update)


def _seen(tree: Any, nu: Any) -> Any:
    """Zero where no gradient has been."""
    return jax.tree.map(lambda x, v: jnp.where(v > 0, x, 0), tree, nu)

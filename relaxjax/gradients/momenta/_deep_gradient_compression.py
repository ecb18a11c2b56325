"""Deep gradient compression: the largest thousandth of a momentum that waits is sent.

Source: Lin, Han, Mao, Wang, Dally 2018 (DGC). On each worker of n, with momentum m, for
every leaf of two dimensions or more:

    g <- g min(1, clip n^-1/2 / |g|)         (local clipping, |g| over all leaves)
    u = m u + g,   v = v + u                 (momentum correction)
    c = the largest |v|, one in 1 / density  (by blocks of the packed leaves)
    v = v - c,   u = 0 where c was sent      (momentum factor masking)
    out = mean of c over the workers

and for vectors and scalars, which are few and matter much:

    g = mean of g over the workers,   u = m u + g,   out = u

The density is `warmup_densities[0]`, `[1]`, .. for `warmup_steps` steps each, and then
`density`: while the model changes fast, more is sent.

    sum of out + mean of v = sum of the mean of u      (whatever is sent when)

Everything sent at once (density 1) without masking is momentum SGD; with masking plain
SGD, since no velocity outlives its sending. A worker alone sends nothing, so nothing is
masked: momentum SGD.

Cost: (n - 1) times top-k's payload, about 5.5 bytes per sent element in blocks of 4096,
one gather of each bucket, and psum of the vectors. State: u and v, two buffers of the
matrices' size in float32, and u of the vectors.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from relaxjax._core._arrays import require_dtypes
from relaxjax._core._axis import AxisName, axis_size
from relaxjax._core._checks import is_off, is_traced
from relaxjax._core._extremes import largest, whole_max
from relaxjax._core._phases import Clock, clock, phased
from relaxjax._core._tree import wide, widened
from relaxjax._core.layouts._sharding import parts_over, whole_sum
from relaxjax._core.traced._marks import marked
from relaxjax.compression import momentum_correction, over, top_k
from relaxjax.gradients.mean._matrices_only import compress_matrices

_CALLER = "deep_gradient_compression"


class DeepGradientCompressionState(NamedTuple):
    """State of `deep_gradient_compression`.

    Attributes:
      clock: one phase for each density.
      exchange: u and v of the matrices, u of the vectors, and the layouts.
    """

    clock: Clock
    exchange: Any


def deep_gradient_compression(
    axis_name: AxisName,
    *,
    density: float = 0.001,
    momentum: float = 0.9,
    nesterov: bool = False,
    masking: bool = True,
    warmup_densities: tuple[float, ...] = (0.25, 0.0625, 0.015625, 0.004),
    warmup_steps: int | None = None,
    clip: float | None = None,
    block_size: int | None = 4096,
    specs: Any = None,
) -> optax.GradientTransformationExtraArgs:
    """Sends the largest elements of a momentum, and the rest when it has grown.

    Put an optimizer without momentum behind it, such as `optax.sgd(0.1)`.

    Args:
      axis_name: the axis, or a tuple (outer, inner).
      density: share of the elements that is sent in each step, in (0, 1]; rounded up
        to whole elements of a block: 0.001 sends 5 of 4096.
      momentum: m, in [0, 1).
      nesterov: whether the momentum is Nesterov's.
      masking: whether a velocity ends where it is sent, so that it does not push on
        when it is old.
      warmup_densities: densities before `density`, one after the other; used with
        `warmup_steps`.
      warmup_steps: number of steps with each of them (the paper takes an epoch); None:
        no warm-up. Each begins a new phase (`relaxjax.advance_phases`).
      clip: the norm of the gradient of all workers together beyond which each of n
        clips its own, at clip / sqrt(n); None: no clipping.
      block_size: number of elements among which the largest are chosen; None: a whole
        message.
      specs: as in `relaxjax.all_reduce`.

    Returns:
      A gradient transformation, for real floating leaves, computed in float32. Its
      `update` takes `weight=`, this worker's number of examples.

    Raises:
      ValueError: `density` or one of `warmup_densities` not in (0, 1], `momentum` not
        in [0, 1), `warmup_steps` below 1, `clip` not positive and finite, `block_size`
        below 1; in `init`: no leaf has two dimensions; in `init` or `update`, as in
        `relaxjax.all_reduce`.
      NameError: `update` outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp, optax, relaxjax
      >>> dgc = relaxjax.deep_gradient_compression("data", density=0.25)
      >>> tx = optax.chain(dgc, optax.sgd(1.0))
      >>> gradients = jnp.array([[[1.0, 2.0, 3.0, 8.0]], [[1.0, 4.0, 3.0, 2.0]]])
      >>> update = lambda g: tx.update(g, tx.init(g))[0]
      >>> print(jax.vmap(update, axis_name="data")(gradients)[0])
      [[-0. -2. -0. -4.]]
    """
    _check(warmup_densities, warmup_steps, clip)
    before = warmup_densities if warmup_steps else ()
    ends = [(k + 1) * (warmup_steps or 0) for k in range(len(before))]
    how = {"momentum": momentum, "nesterov": nesterov}
    vectors = _momentum(**how)

    def exchange(share: float, masks: bool) -> optax.GradientTransformationExtraArgs:
        largest = top_k(share, block_size=block_size)
        compressor = momentum_correction(largest, masking=masks, **how)
        return compress_matrices(axis_name, compressor, specs=specs, vectors=vectors)

    phases = [exchange(share, masking) for share in (*before, density)]
    alone = exchange(density, False)

    def init(params: optax.Params) -> Any:
        require_dtypes(params, _CALLER, "it")
        return DeepGradientCompressionState(clock(*ends), phases[0].init(params))

    def update(updates, state, params=None, *, weight=None, **extra_args):
        del params, extra_args
        n = axis_size(axis_name, _CALLER)
        require_dtypes(updates, _CALLER, "it")
        if clip is not None:
            held = parts_over(updates, specs)
            updates = _clipped(updates, clip / math.sqrt(n), held)
        phase = alone if n == 1 else phases[state.clock.phase]
        out, after = phase.update(updates, state.exchange, weight=weight)
        return out, state._replace(clock=state.clock.tick(), exchange=after)

    side = "gradients" if is_off(momentum) else "momenta"
    return marked(_CALLER, side, axis_name, init, phased(update))


def _clipped(updates: Any, most: float, held: Sequence[tuple[str, ...]]) -> Any:
    """Updates scaled down to a norm of at most `most`; NaN if one is not finite.

    Of each leaf, devices along the axes `held` have parts.
    """
    leaves = [u.astype(wide(u.dtype)) for u in jax.tree.leaves(updates)]
    if not leaves:  # a part of `optax.partition` without any
        return updates
    tops = [whole_max(largest(x), a) for x, a in zip(leaves, held, strict=True)]
    top = largest(jnp.stack(tops))
    # In units of the largest, so that no square is out of range.
    squares = [jnp.sum(jnp.square(over(x, top))) for x in leaves]
    norm = jnp.sqrt(sum(map(whole_sum, squares, held)))
    short = norm * top <= most

    def clip(u: jax.Array) -> jax.Array:
        unit = over(u.astype(wide(u.dtype)), top)
        return jnp.where(short, u, (unit * (most / norm)).astype(u.dtype))

    return jax.tree.map(clip, updates)


def _momentum(momentum: float, nesterov: bool) -> optax.GradientTransformation:
    """The same momentum for vectors, in float32."""
    trace = optax.trace(momentum, nesterov, accumulator_dtype=jnp.float32)

    def update(updates, state, params=None):
        new = widened(updates)
        new, state = trace.update(new, state, params)
        return optax.tree.cast_like(new, updates), state

    return optax.GradientTransformation(trace.init, update)


def _check(densities: tuple[float, ...], steps: int | None, clip: float | None) -> None:
    if wrong := [share for share in densities if not 0 < share <= 1]:
        raise ValueError(
            f"{_CALLER}: warmup_densities={densities} holds {wrong[0]}, which is not "
            "in (0, 1], a share of the elements: 0.25 sends a quarter"
        )
    whole = isinstance(steps, int | np.integer) and steps >= 1
    if steps is not None and not whole:
        raise ValueError(
            f"{_CALLER}: warmup_steps={steps!r} must be a whole number, 1 or more, of "
            "steps with each warm-up density; None is no warm-up"
        )
    if clip is not None and not is_traced(clip) and not 0 < clip < math.inf:
        raise ValueError(
            f"{_CALLER}: clip={clip} must be positive and finite, a norm of the whole "
            "gradient; None is no clipping"
        )

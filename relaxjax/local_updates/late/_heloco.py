"""HeLoCo: outer gradients that arrive late, turned by the momentum where they fight it.

Source: Al Asif et al. 2026, as second-hand notes give it. For the k-th outer gradient D
to arrive, tensor by tensor, with d = D / |D|, v = m / |m| and c = <d, v>:

    s = |D| / (|D| + kappa |m|)                               (how much D is heard)
    c >= c_ok:      D^ = D
    c < 0:          D^ = D - b c |D| v,            b = min(-k_s c s, b_max)
    between:        D^ = |D| phi((1 - l) d + l v), l = min(k_d (1 - c) s, 1)
    m <- mu m + (1 - mu) rho_k D^
    x <- x - eta (rho_k D^ + mu m)

phi(x) = x / |x|. What agrees with the momentum passes; what is against it loses a share
b of its part along v; what is across is turned towards v, as long as before.

Here D^ = D where m = 0, as at first: there is no direction to turn to, and l = 1 would
lose D for ever. An arrival of rho_k = 0 is as if it had not come, whatever it brings.
The notes print no constants; the defaults below are ours.

Law: k D from the momentum k m moves k times as far (k > 0). Cost: nothing is sent.
State: m. Of a leaf whose parts lie on other devices, each part is a tensor of its own.
"""

from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from relaxjax._core._checks import is_traced, require_momentum
from relaxjax._core._extremes import largest
from relaxjax._core._merge_rules import EQUAL, MEAN
from relaxjax._core._tree import wide
from relaxjax.compression import over

_CALLER = "heloco"


class HelocoState(NamedTuple):
    """State of `heloco`.

    Attributes:
      arrived: int32, k, modulo the number of weights.
      momentum: m.
    """

    arrived: Annotated[jax.Array, EQUAL]
    momentum: Annotated[Any, MEAN]


class _Turn(NamedTuple):
    """How far outer gradients are turned: c_ok, k_s, b_max, k_d, kappa."""

    aligned: Any
    shrink: Any
    shrink_most: Any
    turn: Any
    doubt: Any


def heloco(
    learning_rate: Any,
    *,
    momentum: float = 0.9,
    weights: Any = 1.0,
    aligned: float = 0.2,
    shrink: float = 1.0,
    shrink_most: float = 1.0,
    turn: float = 0.5,
    doubt: float = 1.0,
) -> optax.GradientTransformation:
    """An outer optimizer that corrects outer gradients by its momentum.

    Give it to `relaxjax.asynchronous_diloco` as `outer`, or wherever an outer optimizer
    is taken.

    Args:
      learning_rate: eta, of an arrival.
      momentum: mu, in [0, 1).
      weights: rho, 0 or more: one number, such as 1 / n of n workers, or a row of them,
        one for each arrival, which begins anew at its end.
      aligned: c_ok, in [0, 1]: what has this cosine or more passes as it is.
      shrink: k_s, 0 or more: how strongly parts against the momentum are taken away.
      shrink_most: b_max, in [0, 1]: the largest share of them that is.
      turn: k_d, 0 or more: how strongly the rest is turned towards the momentum.
      doubt: kappa, 0 or more: how much an outer gradient that is short beside the
        momentum is corrected less.

    Returns:
      An optimizer, which sends nothing.

    Raises:
      ValueError: a number out of its range; weights that are no row of numbers.

    Example:
      >>> import jax.numpy as jnp, relaxjax
      >>> tx = relaxjax.heloco(1.0, momentum=0.5)
      >>> state = tx.init(jnp.float32(0))
      >>> for d in (2.0, -1.0):  # the second: c = -1, s = 1/2, and so -1/2
      ...     step, state = tx.update(jnp.float32(d), state)
      ...     print(step)
      -2.5
      0.375
    """
    require_momentum(_CALLER, momentum)
    knobs = _Turn(aligned, shrink, shrink_most, turn, doubt)
    _require_knobs(knobs)
    _require_weights(weights)

    def init(params: optax.Params) -> HelocoState:
        return HelocoState(jnp.zeros((), jnp.int32), optax.tree.zeros_like(params))

    def update(updates, state, params=None) -> tuple[Any, HelocoState]:
        del params
        row = jnp.atleast_1d(jnp.asarray(weights, jnp.float32))
        rho = row[state.arrived]

        def hear(d: jax.Array, m: jax.Array) -> jax.Array:
            d, m = (x.astype(wide(m.dtype)) for x in (d, m))
            return rho.astype(m.dtype) * _corrected(d, m, knobs)

        def renew(m: jax.Array, g: jax.Array) -> jax.Array:
            after = momentum * m.astype(g.dtype) + (1 - momentum) * g
            return jnp.where(rho == 0, m, after.astype(m.dtype))

        def step(g: jax.Array, m: jax.Array) -> jax.Array:
            u = -learning_rate * (g + momentum * m.astype(g.dtype))
            return jnp.where(rho == 0, 0, u)

        g = jax.tree.map(hear, updates, state.momentum)
        m = jax.tree.map(renew, state.momentum, g)
        moved = optax.tree.cast_like(jax.tree.map(step, g, m), updates)
        return moved, HelocoState((state.arrived + 1) % len(row), m)

    return optax.GradientTransformation(init, update)


def _corrected(d: jax.Array, m: jax.Array, knobs: _Turn) -> jax.Array:
    """D^ of one tensor; a NaN of D or m stays to be seen."""
    (unit, length), (v, known) = _polar(d), _polar(m)
    c = jnp.sum(unit.conj() * v).real
    total = length + knobs.doubt * known
    heard = length / jnp.where(total == 0, 1, total)
    b = jnp.minimum(-knobs.shrink * c * heard, knobs.shrink_most)
    share = jnp.minimum(knobs.turn * (1 - c) * heard, 1)
    across = _polar((1 - share) * unit + share * v)[0]
    corrected = jnp.where(c < 0, d - b * c * length * v, length * across)
    return jnp.where((c >= knobs.aligned) | (known == 0), d, corrected)


def _polar(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """phi(x), phi(0) = 0, and |x|: what is squared is at most 1."""
    most = largest(x)
    scaled = over(x, most)
    length = jnp.sqrt(jnp.sum(jnp.square(jnp.abs(scaled))))
    return scaled / jnp.where(length == 0, 1, length), most * length


def _require_knobs(knobs: _Turn) -> None:
    for name, value in knobs._asdict().items():
        most = 1 if name in ("aligned", "shrink_most") else np.inf
        if not is_traced(value) and not 0 <= value <= most:
            span = "in [0, 1]" if most == 1 else "0 or more"
            raise ValueError(
                f"{_CALLER}: {name}={value} must be {span}; aligned=0, shrink=0 turns "
                "all corrections off"
            )


def _require_weights(weights: Any) -> None:
    if is_traced(weights):
        return
    row = np.asarray(weights)
    real = row.dtype.kind in "iuf" and row.ndim < 2 and row.size
    if not real or not (np.isfinite(row).all() and (row >= 0).all()):
        raise ValueError(
            f"{_CALLER}: weights={weights!r} must be finite numbers, 0 or more: one, "
            "such as 0.25 for four workers, or a row of one for each arrival"
        )
    if not row.any():
        raise ValueError(
            f"{_CALLER}: weights={weights!r} are all 0, so that nothing ever moves: "
            "give some arrival a weight above 0"
        )

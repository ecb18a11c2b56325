"""Layer-wise rates: LAMB's trust ratios, recorded, and how they go on without norms.

Source: You et al. 2020 (LAMB); Li et al. 2021 (1-bit LAMB). For each layer, with x its
params, u its update, and v^, f^ an older and a fresh variance:

    q = |x| / |u|                              (1 where either is 0)
    c = d c + (1 - d) clip(q, bounds),         c^ = c / (1 - d^t)
    r = max over elements of (sqrt(v^) + eps) / (sqrt(f^) + eps),
        clipped to factor_bounds and to the last r times 1 -+ factor_change

The maximum is over the elements that have seen a gradient; r is 1 where none has.
"""

from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from relaxjax._core._checks import is_traced
from relaxjax._core._merge_rules import EQUAL
from relaxjax.gradients._one_bit_adam import mask_unseen


class TrustRatioSpec(NamedTuple):
    """How c and r are averaged and clipped.

    Attributes:
      coefficient_decay: d.
      coefficient_bounds: the least and the most of q in c.
      factor_bounds: the least and the most of r.
      factor_change: most of a step's relative change of r.
    """

    coefficient_decay: float
    coefficient_bounds: tuple[float, float]
    factor_bounds: tuple[float, float]
    factor_change: float


class LayerRates(NamedTuple):
    """Attributes: coefficient: c; factor: r; each float32[] for each leaf."""

    coefficient: Annotated[Any, EQUAL]
    factor: Annotated[Any, EQUAL]


def check_knobs(caller: str, knobs: TrustRatioSpec) -> None:
    """Refuses bounds that are none, and rates that are no rates, where known."""
    least, most = knobs.coefficient_bounds
    if not 0 < least <= most:
        raise ValueError(
            f"{caller}: coefficient_bounds={knobs.coefficient_bounds} must be (least, "
            "most) with 0 < least <= most; (1e-30, inf) clips nothing"
        )
    least, most = knobs.factor_bounds
    if not 0 < least <= 1 <= most:
        raise ValueError(
            f"{caller}: factor_bounds={knobs.factor_bounds} must be (least, most) with "
            "0 < least <= 1 <= most, as the factor starts at 1; (1, 1) keeps it there"
        )
    if not (is_traced(knobs.coefficient_decay) or 0 <= knobs.coefficient_decay < 1):
        raise ValueError(
            f"{caller}: coefficient_decay={knobs.coefficient_decay} must be at least 0 "
            "and below 1; 0 keeps the last trust ratio alone"
        )
    if not (is_traced(knobs.factor_change) or knobs.factor_change >= 0):
        raise ValueError(
            f"{caller}: factor_change={knobs.factor_change} must be 0 (the factor "
            "stays 1) or more; inf leaves factor_bounds alone"
        )


def first_rates(params: Any) -> LayerRates:
    """The first: c = 0 and r = 1."""
    c, r = (
        jax.tree.map(lambda _, x=x: jnp.full((), x, jnp.float32), params)
        for x in (0, 1)
    )
    return LayerRates(c, r)


def record_ratio(
    rates: LayerRates, x: Any, u: Any, knobs: TrustRatioSpec
) -> tuple[Any, LayerRates]:
    """The rates q, and the next c."""

    def ratio(x, u):
        x, u = optax.safe_norm(x, 0.0), optax.safe_norm(u, 0.0)
        return jnp.where((x == 0) | (u == 0), 1, x / u)

    q = jax.tree.map(ratio, x, u)
    kept = jax.tree.map(lambda q: jnp.clip(q, *knobs.coefficient_bounds), q)
    d = knobs.coefficient_decay
    c = optax.tree.update_moment(kept, rates.coefficient, d, 1)
    return q, rates._replace(coefficient=c)


def frozen_ratio(
    rates: LayerRates, v: Any, old: Any, new: Any, steps: int, knobs: TrustRatioSpec
) -> tuple[Any, LayerRates]:
    """The rates r c^, and the next r.

    Args:
      rates: the last ones.
      v: variance, 0 where no gradient has been seen.
      old: sqrt(v^) + eps.
      new: sqrt(f^) + eps.
      steps: number of steps that c was recorded in.
      knobs: as above.
    """

    def next_factor(ratios, last):
        most = jnp.max(ratios, initial=0)
        r = jnp.clip(jnp.where(most == 0, 1, most), *knobs.factor_bounds)
        change = knobs.factor_change
        return jnp.clip(r, last * (1 - change), last * (1 + change))

    ratios = mask_unseen(v, jax.tree.map(jnp.divide, old, new))
    r = jax.tree.map(next_factor, ratios, rates.factor)
    c = optax.tree.bias_correction(rates.coefficient, knobs.coefficient_decay, steps)
    return jax.tree.map(jnp.multiply, r, c), rates._replace(factor=r)

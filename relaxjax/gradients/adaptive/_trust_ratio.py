"""Layer-wise rates: LAMB's trust ratios, recorded, then continued without norms.

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
from relaxjax._core._extremes import largest, whole_max
from relaxjax._core._merge_rules import EQUAL
from relaxjax._core.layouts._sharding import parts_over, whole_sum
from relaxjax.gradients.adaptive._one_bit_adam import mask_unseen


class TrustRatioSpec(NamedTuple):
    """How c and r are averaged and clipped.

    Attributes:
      coefficient_decay: d.
      coefficient_bounds: the least and the most that q counts as in c.
      factor_bounds: the least and the most that r may be.
      factor_change: largest relative change of r in a step.
    """

    coefficient_decay: float
    coefficient_bounds: tuple[float, float]
    factor_bounds: tuple[float, float]
    factor_change: float


class LayerRates(NamedTuple):
    """Attributes: coefficient: c; factor: r; each float32[] for each leaf."""

    coefficient: Annotated[Any, EQUAL]
    factor: Annotated[Any, EQUAL]


def check_trust_ratio(caller: str, spec: TrustRatioSpec) -> None:
    """Refuses bounds out of order, and numbers outside their range where known."""
    least, most = spec.coefficient_bounds
    if not 0 < least <= most:
        raise ValueError(
            f"{caller}: coefficient_bounds={spec.coefficient_bounds} must be (least, "
            "most) with 0 < least <= most; (1e-30, inf) clips nothing"
        )
    least, most = spec.factor_bounds
    if not 0 < least <= 1 <= most:
        raise ValueError(
            f"{caller}: factor_bounds={spec.factor_bounds} must be (least, most) with "
            "0 < least <= 1 <= most, as the factor starts at 1; (1, 1) keeps it there"
        )
    if not (is_traced(spec.coefficient_decay) or 0 <= spec.coefficient_decay < 1):
        raise ValueError(
            f"{caller}: coefficient_decay={spec.coefficient_decay} must be at least 0 "
            "and below 1; 0 keeps the last trust ratio alone"
        )
    if not (is_traced(spec.factor_change) or spec.factor_change >= 0):
        raise ValueError(
            f"{caller}: factor_change={spec.factor_change} must be 0 (the factor "
            "stays 1) or more; inf leaves factor_bounds alone"
        )


def norms(tree: Any, specs: Any = None) -> Any:
    """|x| of each leaf, of all its parts where devices have parts of it."""
    leaves, structure = jax.tree.flatten(tree)

    def norm(x: jax.Array, axes: tuple[str, ...]) -> jax.Array:
        own = optax.safe_norm(x, 0.0)
        return jnp.sqrt(whole_sum(own**2, axes)) if axes else own

    return structure.unflatten(map(norm, leaves, parts_over(tree, specs)))


def first_rates(params: Any) -> LayerRates:
    """c = 0 and r = 1 for each leaf."""
    c = jax.tree.map(lambda _: jnp.zeros((), jnp.float32), params)
    return LayerRates(c, jax.tree.map(lambda _: jnp.ones((), jnp.float32), params))


def record_ratio(
    rates: LayerRates, x: Any, u: Any, spec: TrustRatioSpec, specs: Any = None
) -> tuple[Any, LayerRates]:
    """The rates q, and the next c; `specs` as in `relaxjax._core.layouts._sharding`."""

    def ratio(x, u):
        return jnp.where((x == 0) | (u == 0), 1, x / u)

    q = jax.tree.map(ratio, norms(x, specs), norms(u, specs))
    clipped = jax.tree.map(lambda q: jnp.clip(q, *spec.coefficient_bounds), q)
    d = spec.coefficient_decay
    c = optax.tree.update_moment(clipped, rates.coefficient, d, 1)
    return q, rates._replace(coefficient=c)


def frozen_ratio(
    rates: LayerRates,
    v: Any,
    old: Any,
    new: Any,
    steps: int,
    spec: TrustRatioSpec,
    specs: Any = None,
) -> tuple[Any, LayerRates]:
    """The rates r c^, and the next r, after `steps` steps in which c was recorded.

    `old` is sqrt(v^) + eps, `new` is sqrt(f^) + eps.
    """

    def next_factor(ratios, last, axes):
        most = whole_max(largest(ratios), axes)
        r = jnp.clip(jnp.where(most == 0, 1, most), *spec.factor_bounds)
        change = spec.factor_change
        return jnp.clip(r, last * (1 - change), last * (1 + change))

    ratios = mask_unseen(v, optax.tree.div(old, new))
    leaves, tree = jax.tree.flatten(ratios)
    each = leaves, jax.tree.leaves(rates.factor), parts_over(v, specs)
    r = tree.unflatten(map(next_factor, *each))
    c = optax.tree.bias_correction(
        rates.coefficient, spec.coefficient_decay, jnp.asarray(steps)
    )
    return optax.tree.mul(r, c), rates._replace(factor=r)

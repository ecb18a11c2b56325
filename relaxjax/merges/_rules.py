"""The rules by name: how each is made, what it looks at, and what it does to rows.

    lengths        factors of each worker's own contribution, then a mean: any code
    coordinates    each by itself: rows of a shard are enough
    distances      one matrix of all shards, then weights of rows

Both faces use this table: `merged` on rows that are all in memory, and
`relaxjax.gradients.mean` where each worker holds a row, or a shard of all.
"""

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from relaxjax._core._tree import wide
from relaxjax.merges._by_rank import median, trimmed, trimmed_mean_of
from relaxjax.merges._centered_clip import centered_clip, centered_clip_of
from relaxjax.merges._clipped import clip, clipped
from relaxjax.merges._geometric_median import geometric_median, geometric_median_of
from relaxjax.merges._gram import Shards, Total
from relaxjax.merges._nearest import nearest, neighbors
from relaxjax.merges._presence import over, presence, squares_of
from relaxjax.merges._rda import radial, rda
from relaxjax.merges._rule import Rule, require_rule
from relaxjax.merges._sorted import median_of

CANCELED = 1e-6  # some rounding errors of a mean of unit vectors in float32


class Kind(NamedTuple):
    """A rule of the table.

    Attributes:
      make: the public function.
      looks_at: "lengths", "coordinates" or "distances".
      run: by lengths, `run(lengths, weights, here, **numbers) -> (factors, weights,
        length of the mean or None)`; by coordinates, `run(rows, here, **numbers)`; by
        distances, `run(shards, here, total, **numbers)`.
    """

    make: Callable[..., Rule]
    looks_at: str
    run: Callable[..., Any]


def _nearest_of(
    shards: Shards, here: jax.Array, total: Total, *, f: int, rule: Rule
) -> list[jax.Array]:
    return merge_shards(rule, neighbors(shards, here, total, f), here, total)


RULES: Mapping[str, Kind] = {
    "clipped": Kind(clipped, "lengths", clip),
    "rda": Kind(rda, "lengths", radial),
    "median": Kind(median, "coordinates", median_of),
    "trimmed": Kind(trimmed, "coordinates", trimmed_mean_of),
    "geometric_median": Kind(geometric_median, "distances", geometric_median_of),
    "centered_clip": Kind(centered_clip, "distances", centered_clip_of),
    "nearest": Kind(nearest, "distances", _nearest_of),
}


def looks_at(rule: Rule) -> str:
    """What a rule looks at: "lengths", "coordinates" or "distances"."""
    return RULES[rule.name].looks_at


def rule_of(record: Any) -> Rule:
    """The rule of plain data that `Rule.record` made, in whoever's file.

    Raises:
      ValueError: it is of no rule, or has other numbers than the rule takes.
    """
    said = dict(record) if isinstance(record, Mapping) else {}
    name = said.pop("merge", None)
    if not isinstance(name, str) or name not in RULES:
        raise ValueError(f"{name!s:.40} is not a rule: one of {', '.join(RULES)}")
    if isinstance(said.get("rule"), Mapping):
        if said["rule"].get("merge") == "nearest":
            raise ValueError("nearest: its rule is nearest again")
        said["rule"] = rule_of(said["rule"])
    try:
        return RULES[name].make(**said)
    except TypeError as error:
        raise ValueError(f"{name} has other arguments: {error!s:.80}") from error


def merge_rows(rule: Rule, rows: jax.Array, here: jax.Array) -> jax.Array:
    """Merges rows by a rule that looks at each coordinate by itself."""
    return RULES[rule.name].run(rows, here, **rule.numbers)


def merge_shards(
    rule: Rule, shards: Shards, here: jax.Array, total: Total
) -> list[jax.Array]:
    """Merges rows of finite numbers by coordinates or distances, shard by shard."""
    if looks_at(rule) == "coordinates":
        return [merge_rows(rule, x, here) for x in shards]
    return RULES[rule.name].run(shards, here, total, **rule.numbers)


class Factors(NamedTuple):
    """What a rule by lengths makes of them.

    Attributes:
      factors: [n, leaves], of each contribution's leaves.
      weights: [n], for the mean; 0 for the absent.
      lengths: [leaves], which the mean gets; None: it stays as it is.
    """

    factors: jax.Array
    weights: jax.Array
    lengths: jax.Array | None


def factors_of(
    rule: Rule, lengths: jax.Array, weights: jax.Array, here: jax.Array
) -> Factors:
    """By lengths [n, leaves] and weights [n]."""
    return Factors(*RULES[rule.name].run(lengths, weights, here, **rule.numbers))


def of_length(direction: jax.Array, own: jax.Array, length: jax.Array) -> jax.Array:
    """A vector of this length along the mean direction; 0 if directions cancel.

    `own` is the direction's length. NaN where the length is out of range, which takes
    all directions to 0.
    """
    canceled = own < CANCELED
    scale = jnp.where(canceled, 0 * length, length / jnp.where(canceled, 1, own))
    return scale.astype(direction.dtype) * direction


def unless_all_broken(
    weights: jax.Array, here: jax.Array
) -> Callable[[jax.Array], jax.Array]:
    """NaN in place of a result, where some have weight and none is finite."""
    broken = jnp.any(weights > 0) & ~jnp.any(here)
    return lambda x: jnp.where(broken, jnp.nan, x).astype(x.dtype)


def merged(rule: Rule, rows: Any, weights: Any = None) -> Any:
    """Merges contributions that are all in memory, as a server or an island has them.

    A contribution that is not finite, or as long as 1e18, is absent, and so is one
    whose weight is 0, negative or not finite. If that leaves none of those that have
    weight, the result is NaN; if none has weight, 0.

    Args:
      rule: of `relaxjax.merges`.
      rows: a pytree of real arrays [n, ...], NumPy's or JAX's, a row for each worker.
      weights: numbers of 0 or more [n], such as examples; None: 1 each. Only
        `clipped` and `rda` look at more than whether it is 0.

    Returns:
      The same tree without the first axis, in the dtypes of its leaves; computed in
      float32 or wider.

    Raises:
      TypeError: `rule` is not a rule.
      ValueError: leaves without a first axis of one size, or not of real floats;
        weights of another shape.

    Example:
      >>> import numpy as np
      >>> from relaxjax import merges
      >>> x = {"w": np.array([[1.0, 2], [3, 4], [np.nan, 0]], np.float32)}
      >>> print(merges.merged(merges.clipped(cap=None), x, [1, 3, 100])["w"])
      [1.2562306 1.8416407]
    """
    require_rule("merged", "rule", rule)
    with np.errstate(over="ignore"):  # what float32 does not hold is absent
        leaves, tree = jax.tree.flatten(jax.tree.map(jnp.asarray, rows))
        n = _count(leaves)
        w = jnp.ones(n) if weights is None else jnp.asarray(weights, jnp.float32)
    if w.shape != (n,):
        raise ValueError(f"merged: weights of shape {w.shape} must be one for each row")
    flat = [x.reshape(n, -1).astype(wide(x.dtype)) for x in leaves]
    lengths = jnp.sqrt(jnp.stack([jax.vmap(squares_of)(x) for x in flat], axis=1))
    here = presence(w, lengths)
    flat = [jnp.where(here[:, None], x, 0) for x in flat]
    if looks_at(rule) == "lengths":
        out = _mean_of(flat, factors_of(rule, lengths, w, here))
    else:
        out = merge_shards(rule, flat, here, lambda parts: reduce(jnp.add, parts))
    mark = unless_all_broken(w, here)
    pairs = zip(out, leaves, strict=True)
    return tree.unflatten(
        [mark(x).reshape(y.shape[1:]).astype(y.dtype) for x, y in pairs]
    )


def _mean_of(flat: Shards, how: Factors) -> list[jax.Array]:
    """The mean of rows without NaN, each times its factors."""
    factors = jnp.where(how.weights[:, None] > 0, how.factors, 0)
    means = []
    for leaf, x in enumerate(flat):
        rows = zip(how.weights, factors[:, leaf], x, strict=True)
        mean = over(
            reduce(jnp.add, [w * (s * y) for w, s, y in rows]), how.weights.sum()
        )
        if how.lengths is not None:
            mean = of_length(mean, jnp.sqrt(squares_of(mean)), how.lengths[leaf])
        means.append(mean)
    return means


def _count(leaves: list[jax.Array]) -> int:
    """How many rows all leaves have."""
    counts = {x.shape[:1] for x in leaves}
    if len(counts) != 1 or counts == {()} or counts == {(0,)}:
        raise ValueError("merged: every leaf must have a row for each worker, [n, ...]")
    for x in leaves:
        if not jnp.issubdtype(x.dtype, jnp.floating):
            raise ValueError(f"merged: a leaf is {x.dtype}, and must be of real floats")
    return leaves[0].shape[0]

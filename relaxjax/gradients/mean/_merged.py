"""A merge over the workers by coordinates or distances, in two shots.

    all-to-all     worker i receives chunk i of every worker
    merge          of n rows, by coordinates; or by distances, from a matrix that is
                   added up over the chunks, by one small two-shot all-reduce
    all-gather     every worker receives what was made of all chunks

A dense code travels in both shots: rows are decoded, merged, and the merged chunk is
encoded once more. What codes lose is not fed back: a median passes it on to nobody.

A worker counts that has weight and is finite, as all know from its length and weight;
the others' rows are not looked at. Everyone receives the same bits.

By coordinates, each bucket leaves as soon as its gradients exist. Distances are of all
leaves together, so that no chunk is merged before the last one has come.

Cost: the bytes of an all-reduce, 2 (n - 1) ceil(d / n) elements a bucket, and 4 (n - 1)
bytes for each leaf and a weight, for who counts; by distances also 2 (n - 1)
ceil(k^2 / n) floats, for the k = n rows of a matrix (`centered_clip`: n + 1), once more
where a rule is on top of another. A sort of n chunks.
"""

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from relaxjax._core._axis import AxisName, axes_of
from relaxjax._core._tree import leaf_names, wide, widened
from relaxjax._core.layouts._sharding import alike, on_own_shards, parts_over, whole_sum
from relaxjax.collectives import two_shot_all_reduce
from relaxjax.compression import Compressor
from relaxjax.gradients.mean._by_lengths import lengths_of_all
from relaxjax.gradients.mean._chunks import Shots, coded_shots, exact_shots
from relaxjax.gradients.mean._codec import as_codec, step_keys
from relaxjax.gradients.mean._packing import map_buckets, pack, unpack
from relaxjax.merges import (
    Rule,
    looks_at,
    merge_rows,
    merge_shards,
    presence,
    unless_all_broken,
)

ShotsOf = Callable[[Any], Shots]
"""From the number of a bucket."""


def merged_over_workers(
    updates: Any,
    state: Any,
    weight: Any,
    *,
    compressor: Compressor | None,
    rule: Rule,
    axis_name: AxisName,
    plan: Callable[[Any], Any],
    specs: Any,
    ordered: bool,
) -> tuple[Any, Any]:
    """The merge, like the updates, and the next state of a code's randomness.

    Buckets of `plan` leave one after the other, those of codes if `ordered`.
    """
    _require_real(updates, rule)
    if not jax.tree.leaves(updates):  # all of them masked
        return updates, state
    lengths, weights = lengths_of_all(updates, weight, axis_name, specs)
    here = presence(weights, lengths)
    keys = ()
    if compressor is not None:
        keys, words = step_keys(compressor, state.words, axis_name)
        state = state._replace(words=words)
    in_turn = ordered or compressor is None
    travels = updates if compressor is None else widened(updates)

    def run(tree: Any, here: jax.Array, keys: Any) -> Any:
        shots = partial(_shots, compressor, keys, axis_name)
        if looks_at(rule) == "coordinates":
            return _by_coordinates(rule, shots, here, axis_name, plan, in_turn, tree)
        return _by_distances(rule, shots, here, axis_name, specs, tree)

    out = on_own_shards(run, travels, specs, "all_reduce", here, keys)
    mark = unless_all_broken(weights, here)
    return jax.tree.map(lambda x, u: mark(x).astype(u.dtype), out, updates), state


def _require_real(updates: Any, rule: Rule) -> None:
    for name, x in zip(leaf_names(updates), jax.tree.leaves(updates), strict=True):
        if jnp.issubdtype(x.dtype, jnp.complexfloating):
            raise ValueError(
                f"all_reduce: leaf {name!r} is {x.dtype}, and op={rule!r} merges real "
                "leaves only; use merges.clipped(), or reduce its parts"
            )


def _shots(
    compressor: Compressor | None, keys: Any, axis_name: AxisName, number: Any
) -> Shots:
    """Those of a bucket."""
    if compressor is None:
        return exact_shots(axis_name)
    (name,) = axes_of(axis_name)
    return coded_shots(name, as_codec(compressor, keys, number))


def _by_coordinates(
    rule: Rule,
    shots: ShotsOf,
    here: jax.Array,
    axis_name: AxisName,
    plan: Any,
    ordered: bool,
    tree: Any,
) -> Any:
    def exchange(x: jax.Array, number: jax.Array) -> tuple[jax.Array]:
        if not x.size:
            return (lax.psum(x, axis_name),)
        rows, join = shots(number)
        return (join(merge_rows(rule, _wide(rows(x)), here), x),)

    leaves, kind = jax.tree.flatten(tree)
    return kind.unflatten(map_buckets(leaves, plan(tree), exchange, ordered=ordered)[0])


def _by_distances(
    rule: Rule,
    shots: ShotsOf,
    here: jax.Array,
    axis_name: AxisName,
    specs: Any,
    tree: Any,
) -> Any:
    """One bucket for each dtype, and each layout over the mesh's other axes."""
    leaves, kind = jax.tree.flatten(tree)
    axes = parts_over(tree, specs)
    groups = alike([(x.dtype, over) for x, over in zip(leaves, axes, strict=True)])
    members = [[leaves[i] for i in group] for group in groups]
    flats = [pack(few) for few in members]
    ways = [shots(np.uint32(k)) for k in range(len(flats))]
    rows = [_wide(way.rows(x)) for way, x in zip(ways, flats, strict=True)]
    total = partial(_total, axis_name, [axes[group[0]] for group in groups])
    chunks = merge_shards(rule, rows, here, total)
    out = list(leaves)
    for k, (group, few) in enumerate(zip(groups, members, strict=True)):
        whole = ways[k].join(chunks[k], flats[k])
        for i, x in zip(group, unpack(whole, few), strict=True):
            out[i] = x
    return kind.unflatten(out)


def _total(
    axis_name: AxisName, axes: Sequence[tuple[str, ...]], parts: Sequence[jax.Array]
) -> jax.Array:
    """The sum over groups, devices and workers, in one order on all of them."""
    sums = [whole_sum(x, over) for x, over in zip(parts, axes, strict=True)]
    return two_shot_all_reduce(reduce(jnp.add, sums), axis_name)


def _wide(x: jax.Array) -> jax.Array:
    return x.astype(wide(x.dtype))

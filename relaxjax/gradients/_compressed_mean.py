"""The mean over the workers of compressed updates, and what was lost in it.

    p = before(g, state)                      (feedback, leaf by leaf)
    mean, lost = exchange of p                (one of `EXCHANGES`, bucket by bucket)
    c = p - lost                              (what of p was delivered)
    out, state = after(g, c, mean, state)

A worker that is absent (of weight zero) has no g and sends nothing: p = 0, and its
feedback waits (`Feedback.absent`); in a two-shot or a ring, what is lost in the sums
that pass through it is added to it. Where something is not finite, `out` shows it and
feedback stays as it was (`fed_back`).

As every exchange conserves the mean (`relaxjax.collectives._payload`), so does every
feedback with every exchange, whatever is lost where.

Cost: what the exchange states for the payload of each bucket, and the feedback's
buffers, in the shapes of the leaves.
"""

import functools
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from relaxjax._core._axis import AxisName
from relaxjax._core._buckets import Bucket
from relaxjax._core._merge_rules import EQUAL, SUM
from relaxjax._core._random import Keys, key_words
from relaxjax._core._sharding import on_own_shards
from relaxjax._core._tree import widened
from relaxjax.collectives import CODED_EXCHANGES as EXCHANGES
from relaxjax.compression import Compressor, fed_back
from relaxjax.gradients._codec import as_codec, step_keys
from relaxjax.gradients._packing import map_buckets


class CompressedState(NamedTuple):
    """State of a compressed mean.

    Attributes:
      feedback: the compressor's, each field like the params.
      words: uint32[2], equal on all workers, from which the randomness of the next step
        is drawn; () for deterministic compressors.
    """

    feedback: Any
    words: Annotated[Any, EQUAL]


class SummedState(NamedTuple):
    """State of a compressed sum, like `CompressedState`: what workers lost adds up."""

    feedback: Annotated[Any, SUM]
    words: Annotated[Any, EQUAL]


def init_compressed(
    compressor: Compressor | None, params: Any, seed: int, op: str
) -> Any:
    """The first state; each field of the feedback's becomes a tree like the params."""
    if compressor is None:
        return ()
    init = compressor.feedback.init
    kind = jax.tree.structure(init(jnp.zeros(())))
    fields = [
        jax.tree.map(lambda x, k=k: jax.tree.leaves(init(x))[k], params)
        for k in range(kind.num_leaves)
    ]
    words = key_words(seed) if compressor.random else ()
    state = SummedState if op == "sum" else CompressedState
    return state(kind.unflatten(fields), words)


def compressed_mean(
    updates: Any,
    state: Any,
    absent: jax.Array | None = None,
    *,
    compressor: Compressor,
    algorithm: str,
    axis_name: AxisName,
    plan: Callable[[Any], tuple[Bucket, ...]],
    specs: Any = None,
    ordered: bool = False,
) -> tuple[Any, Any]:
    """The mean over the workers, in the dtypes of the updates, and the next state.

    `absent`, bool[], tells whether this worker, with zeros for updates, sends nothing;
    None: no worker is absent. `plan` gives the buckets of the tree that travels, in
    float32, which leave one after the other if `ordered`.
    """
    if not jax.tree.leaves(updates):  # all of them masked
        return updates, state
    feedback = compressor.feedback
    kind = jax.tree.structure(feedback.init(jnp.zeros(())))
    fields = kind.flatten_up_to(state.feedback)  # each a tree like the updates

    def before(g, *s):
        p = feedback.before(g, kind.unflatten(s)).astype(jnp.float32)
        return p if absent is None else jnp.where(absent, 0, p)

    def after(g, p, lost, mean, *s):
        return fed_back(feedback, g, p, lost, mean, kind.unflatten(s), absent)

    g = widened(updates)
    p = jax.tree.map(before, g, *fields)
    keys, words = step_keys(compressor, state.words, axis_name)
    exchange = functools.partial(
        _exchange, compressor, algorithm, axis_name, plan, ordered
    )
    mean, lost = on_own_shards(exchange, p, specs, "all_reduce", keys, results=2)
    results = jax.tree.map(after, g, p, lost, mean, *fields)
    out, fed = jax.tree.transpose(jax.tree.structure(updates), None, results)
    out = optax.tree.cast_like(out, updates)
    return out, state._replace(feedback=fed, words=words)


def _exchange(
    compressor: Compressor,
    algorithm: str,
    axis_name: AxisName,
    plan: Callable[[Any], tuple[Bucket, ...]],
    ordered: bool,
    p: Any,
    keys: tuple[Keys, ...],
) -> tuple[Any, ...]:
    """The mean over the workers, and what this worker's messages have lost."""
    run = EXCHANGES[algorithm].run
    leaves, tree = jax.tree.flatten(p)
    both = map_buckets(
        leaves,
        plan(p),
        lambda flat, bucket: run(flat, axis_name, as_codec(compressor, keys, bucket)),
        ordered=ordered,
    )
    return tuple(map(tree.unflatten, both))

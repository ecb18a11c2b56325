"""The mean over the workers of compressed updates, and what was lost in it.

    p = before(g, state)                      (feedback, leaf by leaf)
    mean, lost = exchange of p                (one of `EXCHANGES`, bucket by bucket)
    c = p - lost                              (what of p was delivered)
    out, state = after(g, c, mean, state)

A worker that is absent (of weight zero) has no g and sends nothing: p = 0, and its
feedback waits (`Feedback.absent`); in a two-shot or a ring, what is lost in the sums
that pass through it is added to it. Where something is not finite, `out` shows it and
feedback stays as it was (`fed_back`).

As every exchange conserves the mean (`relaxjax.collectives.wire._payload`), so does
every feedback with every exchange, whatever is lost where.

Cost: what the exchange states for the payload of each bucket, and the feedback's
buffers, in the shapes of the leaves.
"""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from relaxjax._core._axis import AxisName, axis_size
from relaxjax._core._buckets import Bucket
from relaxjax._core._merge_rules import EQUAL, SUM
from relaxjax._core._random import key_words
from relaxjax._core._tree import widened
from relaxjax._core._weights import weigh_wide
from relaxjax._core.layouts._sharding import on_own_shards
from relaxjax.collectives import CODED_EXCHANGES as EXCHANGES
from relaxjax.compression import Compressor, fed_back
from relaxjax.gradients.mean._codec import as_codec, step_keys
from relaxjax.gradients.mean._packing import map_buckets


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
    kept = kind.unflatten(fields), key_words(seed) if compressor.random else ()
    return SummedState(*kept) if op == "sum" else CompressedState(*kept)


def compressed_mean(
    updates: Any,
    state: Any,
    weight: jax.Array | None,
    compressor: Compressor,
    *,
    axis_name: AxisName,
    algorithm: str,
    op: str,
    plan: Callable[[Any], tuple[Bucket, ...]],
    specs: Any,
    ordered: bool,
) -> tuple[Any, Any]:
    """The mean or the sum over the workers, like the updates, and the next state.

    `weight`, a number, multiplies this worker's updates; a worker of weight 0 sends
    nothing, and None is 1 for all. `plan` gives the buckets of the tree that travels,
    in float32, which leave one after the other if `ordered`.
    """
    if not jax.tree.leaves(updates):  # all of them masked
        return updates, state
    feedback = compressor.feedback
    kind = jax.tree.structure(feedback.init(jnp.zeros(())))
    fields = kind.flatten_up_to(state.feedback)  # each a tree like the updates
    absent = None if weight is None else weight == 0

    def before(g, *s):
        p = feedback.before(g, kind.unflatten(s)).astype(jnp.float32)
        return p if absent is None else jnp.where(absent, 0, p)

    def after(g, p, lost, mean, *s):
        return fed_back(feedback, g, p, lost, mean, kind.unflatten(s), absent)

    weighed = updates
    if weight is not None:
        weighed = jax.tree.map(lambda u: weigh_wide(u, weight), updates)
    g = widened(weighed)
    feeding = jax.named_scope("feedback")
    p = jax.tree.map(feeding(before), g, *fields)
    keys, words = step_keys(compressor, state.words, axis_name)

    def send(flat, bucket, keys):
        codec = as_codec(compressor, keys, bucket)
        return EXCHANGES[algorithm].run(flat, axis_name, codec)

    exchange = partial(_exchange, send, plan, ordered)
    mean, lost = on_own_shards(exchange, p, specs, "all_reduce", keys, results=2)
    results = jax.tree.map(feeding(after), g, p, lost, mean, *fields)
    out, fed = jax.tree.transpose(jax.tree.structure(updates), None, results)
    out = optax.tree.cast_like(out, weighed)
    if op == "sum":
        out = optax.tree.scale(axis_size(axis_name, "all_reduce"), out)
    out = optax.tree.cast_like(out, updates)
    return out, state._replace(feedback=fed, words=words)


def _exchange(
    send: Callable[..., Any], plan: Callable[..., Any], ordered: bool, p: Any, keys: Any
) -> tuple[Any, ...]:
    """The mean over the workers, and what this worker's messages have lost."""
    leaves, tree = jax.tree.flatten(p)
    both = map_buckets(leaves, plan(p), partial(send, keys=keys), ordered=ordered)
    return tuple(map(tree.unflatten, both))

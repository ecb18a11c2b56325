"""The mean over the workers of compressed updates, and what was lost in it.

    p = before(g, state)                      (feedback, leaf by leaf)
    mean, lost = exchange of p                (one of `EXCHANGES`, bucket by bucket)
    c = p - lost                              (what of p was delivered)
    out, state = after(g, c, mean, state)

A worker that is absent (of weight zero) has g = 0 and sends nothing: p = 0 after
`before`, so that its feedback waits; in a two-shot or a ring, what is lost in the sums
that pass through it is added to it.

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
from jax import lax

from relaxjax._core._axis import AxisName, axes_of
from relaxjax._core._buckets import Bucket
from relaxjax._core._dtypes import wide
from relaxjax._core._merge_rules import EQUAL, SUM
from relaxjax._core._random import Keys, fold, key_words
from relaxjax._core._sharding import on_own_shards
from relaxjax.collectives import (
    Codec,
    Lossy,
    compressed_hierarchical,
    compressed_one_shot,
    compressed_ring,
    compressed_two_level,
    compressed_two_shot,
    linear_psum,
)
from relaxjax.compression import Compressor
from relaxjax.gradients._packing import map_buckets


class Exchange(NamedTuple):
    """How payloads travel.

    Attributes:
      run: one of the compressed exchanges of `relaxjax.collectives`.
      stages: how often a value is encoded on its way, for n workers.
    """

    run: Callable[[jax.Array, AxisName, Codec], Lossy]
    stages: str


EXCHANGES: dict[str, Exchange] = {
    "psum": Exchange(linear_psum, "1"),
    "one_shot": Exchange(compressed_one_shot, "1"),
    "two_shot": Exchange(compressed_two_shot, "2"),
    "ring": Exchange(compressed_ring, "n"),
    "hierarchical": Exchange(compressed_hierarchical, "2"),
    "two_level": Exchange(compressed_two_level, "3"),
}


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
    """State of a compressed sum: what all workers lost is sent, and not its mean.

    Attributes:
      feedback: as of `CompressedState`.
      words: as of `CompressedState`.
    """

    feedback: Annotated[Any, SUM]
    words: Annotated[Any, EQUAL]


def init_compressed(compressor: Compressor, params: Any, seed: int) -> CompressedState:
    """The first state."""
    tree = jax.tree.structure(params)
    states = [compressor.feedback.init(x) for x in jax.tree.leaves(params)]
    words = key_words(seed) if compressor.random else ()
    return CompressedState(_fields_of(compressor, states, tree), words)


def compressed_mean(
    updates: Any,
    state: CompressedState,
    absent: jax.Array | None = None,
    *,
    compressor: Compressor,
    algorithm: str,
    axis_name: AxisName,
    plan: Callable[[Any], tuple[Bucket, ...]],
    specs: Any = None,
) -> tuple[Any, CompressedState]:
    """The mean over the workers, in the dtypes of the updates, and the next state.

    Args:
      updates: a pytree of real floating arrays.
      state: as `init_compressed` made it.
      absent: bool[], whether this worker, with zeros for updates, has nothing to say;
        None: no worker is.
      compressor: with feedback or without.
      algorithm: one of `EXCHANGES`.
      axis_name: the workers' axes.
      plan: from the tree that travels, in float32, to its buckets.
      specs: as of `relaxjax.all_reduce`.
    """
    leaves, tree = jax.tree.flatten(updates)
    if not leaves:  # all of them masked
        return updates, state
    feedback = compressor.feedback
    gradients = [u.astype(wide(u.dtype)) for u in leaves]
    states = _leaves_of(compressor, state.feedback, len(leaves))
    sent = [feedback.before(g, s) for g, s in zip(gradients, states, strict=True)]
    sent = [_unless(absent, p.astype(jnp.float32)) for p in sent]
    noises, words = step_keys(compressor, state.words, axis_name)
    exchange = functools.partial(
        _exchanged,
        compressor=compressor,
        run=EXCHANGES[algorithm].run,
        axis_name=axis_name,
        plan=plan,
    )
    p = jax.tree.unflatten(tree, sent)
    if specs is None:
        both = exchange(p, noises)
    else:
        both = on_own_shards(exchange, p, specs, "all_reduce", noises, results=2)
    means, losts = map(jax.tree.leaves, both)
    results = [
        feedback.after(g, p - lost, mean, s)
        for g, p, lost, mean, s in zip(
            gradients, sent, losts, means, states, strict=True
        )
    ]
    out = [x.astype(u.dtype) for (x, _), u in zip(results, leaves, strict=True)]
    after = _fields_of(compressor, [s for _, s in results], tree)
    return jax.tree.unflatten(tree, out), CompressedState(after, words)


def _unless(absent: jax.Array | None, p: jax.Array) -> jax.Array:
    """What is sent: nothing, where a worker is absent."""
    return p if absent is None else jnp.where(absent, 0, p)


def _exchanged(
    p: Any,
    noises: tuple[Keys, ...],
    *,
    compressor: Compressor,
    run: Callable[[jax.Array, AxisName, Codec], Lossy],
    axis_name: AxisName,
    plan: Callable[[Any], tuple[Bucket, ...]],
) -> tuple[Any, Any]:
    """The mean over the workers, and what this one's sends have lost."""

    def over_workers(flat, number):
        return tuple(run(flat, axis_name, as_codec(compressor, noises, number)))

    leaves, tree = jax.tree.flatten(p)
    mean, lost = map_buckets(leaves, plan(p), over_workers)
    return jax.tree.unflatten(tree, mean), jax.tree.unflatten(tree, lost)


def as_codec(
    compressor: Compressor, noises: tuple[Keys, ...], number: jax.Array
) -> Codec:
    """The compressor with its randomness of one bucket.

    `noises` are of the axes, from the inside; none for deterministic compressors.
    """

    def drawn(place: jax.Array) -> Keys | None:
        if not noises:
            return None
        at = functools.partial(_at, number=number, place=place)
        return Keys(at(noises[0].shared), at(noises[0].own))

    return Codec(
        lambda x, place: compressor.compress(x, drawn(place)),
        lambda payload, size, place: compressor.decompress(payload, size, drawn(place)),
        (lambda: as_codec(compressor, noises[1:], number)) if noises[1:] else None,
    )


def _at(words: jax.Array, number: jax.Array, place: jax.Array) -> jax.Array:
    return fold(fold(words, number), place)


def step_keys(
    compressor: Compressor, words: Any, axis_name: AxisName
) -> tuple[tuple[Keys, ...], Any]:
    """The randomness of this step along each axis, and the words of the next.

    Along an axis, workers draw alike that differ in their place on inner axes alone:
    what they hold is the same there already.
    """
    if not compressor.random:
        return (), words
    own, shared = fold(words, 1), fold(words, 2)
    noises = []
    for name in axes_of(axis_name):
        own = fold(own, lax.axis_index(name))
        noises.append(Keys(shared, own))
    return tuple(reversed(noises)), fold(words, 0)


def _fields_of(compressor: Compressor, states: list[Any], tree: Any) -> Any:
    """From a state for each leaf to a state whose fields are trees."""
    kind = jax.tree.structure(compressor.feedback.init(jnp.zeros(())))
    fields = [kind.flatten_up_to(state) for state in states]
    return kind.unflatten(
        [tree.unflatten([f[k] for f in fields]) for k in range(kind.num_leaves)]
    )


def _leaves_of(compressor: Compressor, state: Any, count: int) -> list[Any]:
    """Inverse of `_fields_of`."""
    kind = jax.tree.structure(compressor.feedback.init(jnp.zeros(())))
    fields = [jax.tree.leaves(field) for field in kind.flatten_up_to(state)]
    return [kind.unflatten([field[i] for field in fields]) for i in range(count)]

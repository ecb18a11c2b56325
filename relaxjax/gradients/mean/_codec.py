"""A compressor and its random bits, as the codec that a collective takes."""

from typing import Any

import jax
from jax import lax

from relaxjax._core._axis import AxisName, axes_of
from relaxjax._core._random import Keys, fold
from relaxjax.collectives import Codec
from relaxjax.compression import Compressor


def side_of(compressor: Compressor | None) -> str:
    """The side of the optimizer of a reducer with the compressor: see its marks."""
    return "momenta" if compressor and compressor.feedback.momentum else "gradients"


def as_codec(
    compressor: Compressor, keys: tuple[Keys, ...], bucket: jax.Array
) -> Codec:
    """The compressor with the keys of this step (`step_keys`) for one bucket.

    Its parts have scopes of their own, by which a profile names them.
    """

    def keys_at(place: jax.Array) -> Keys | None:
        if not keys:
            return None
        return Keys(*(fold(fold(words, bucket), place) for words in keys[0]))

    @jax.named_scope("encode")
    def encode(x: jax.Array, place: jax.Array) -> Any:
        return compressor.compress(x, keys_at(place))

    @jax.named_scope("decode")
    def decode(payload: Any, size: int, place: jax.Array) -> jax.Array:
        return compressor.decompress(payload, size, keys_at(place))

    outward = (lambda: as_codec(compressor, keys[1:], bucket)) if keys[1:] else None
    return Codec(encode, decode, outward)


def step_keys(
    compressor: Compressor, words: Any, axis_name: AxisName
) -> tuple[tuple[Keys, ...], Any]:
    """The keys of this step for each axis from the inside, and the next step's words.

    Along an axis, workers that differ only in their place on inner axes draw alike, as
    they hold the same there already. Deterministic compressors have no keys.
    """
    if not compressor.random:
        return (), words
    own, shared = fold(words, 1), fold(words, 2)
    keys = []
    for name in axes_of(axis_name):
        own = fold(own, lax.axis_index(name))
        keys.append(Keys(shared, own))
    return tuple(reversed(keys)), fold(words, 0)

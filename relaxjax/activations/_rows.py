"""Rows of an activation as messages: the last dimension in codes, token by token.

    x [p, .., h]  ->  bits [p, r, b]  ->  x^ [p, r, h]      r rows in each of p parts

A block of a code runs along the last dimension and never holds two tokens, so that a
token decodes alike wherever it lies. The scales are in the row, behind its codes: one
array travels, of unsigned integers, which no backend widens.

Random codes draw for each worker, part and row anew; what sender and receiver share,
such as a mask, for each row.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from relaxjax._core._random import Keys, fold
from relaxjax._core._tree import is_narrow
from relaxjax.collectives import Codec, message, opened, places
from relaxjax.compression import Compressor

Words = jax.Array | tuple[()]


class Code(NamedTuple):
    """How one direction travels.

    Attributes:
      compressor: one without feedback.
      words: uint32[2], equal on all workers, or () for deterministic compressors.
    """

    compressor: Compressor
    words: Words

    def encode(self, x: jax.Array, name: str, first: int = 0) -> jax.Array:
        """[p, r, b] of x [p, .., h]; `first` tells the stages of an exchange apart."""
        rows = x.astype(jnp.float32).reshape(len(x), -1, width_of(x))
        numbers = places(first, rows.shape[1])

        def part(rows: jax.Array, number: jax.Array) -> jax.Array:
            codec = self._codec(self._own(name, number))
            return jax.vmap(lambda row, i: message(codec, row, i).bits)(rows, numbers)

        return jax.vmap(part)(rows, places(0, len(x)))

    def decode(self, bits: jax.Array, width: int, first: int = 0) -> jax.Array:
        """float32[p, r, width] of what has arrived."""
        return _opened(self._codec(self.words), bits, width, first)

    def payloads(self, bits: jax.Array, width: int) -> Any:
        """The payloads in what has arrived, with leaves [p, r, ..]."""
        codec = self._codec(self.words)
        as_it_is = codec._replace(decode=lambda payload, size, place: payload)
        return _opened(as_it_is, bits, width, 0)

    def _own(self, name: str, part: jax.Array) -> Words:
        if isinstance(self.words, tuple):
            return ()
        return fold(fold(fold(self.words, 1), lax.axis_index(name)), part)

    def _codec(self, own: Words) -> Codec:
        made = self.compressor

        def keys(place: jax.Array) -> Keys | None:
            if isinstance(self.words, tuple) or isinstance(own, tuple):
                return None
            return Keys(fold(self.words, place), fold(own, place))

        return Codec(
            lambda x, place: made.compress(x, keys(place)),
            lambda payload, size, place: made.decompress(payload, size, keys(place)),
        )


def _opened(codec: Codec, bits: jax.Array, width: int, first: int) -> Any:
    numbers = places(first, bits.shape[1])
    row = jax.vmap(lambda b, i: opened(codec, b, width, i))
    return jax.vmap(lambda rows: row(rows, numbers))(bits)


def width_of(x: jax.Array) -> int:
    """Elements of a row of x [p, .., h]; 1 if a part is a number."""
    return x.shape[-1] if x.ndim > 1 else 1


def as_dtype(x: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """`x` in a dtype, in which nothing that is finite becomes infinite."""
    if not is_narrow(dtype):
        return x.astype(dtype)
    top = float(jnp.finfo(dtype).max)
    return jnp.where(jnp.isfinite(x), jnp.clip(x, -top, top), x).astype(dtype)

"""A collective as a pair: one leg in the forward pass, one in the backward pass.

    forward   y = F(x)      encode, one message, decode
    backward  g_x = B(g_y)  F's transpose, in codes of its own

F is B's transpose too, so second derivatives, such as a gradient penalty's, go the same
two ways.

Both are inside one `jax.custom_vjp` with floats on either side. Codes are integers, and
a gradient through an integer is zero; a cast to eight bits and back would cast the
gradient likewise, without a scale. Nothing is kept for the backward pass, as both legs
are linear but for their rounding.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from relaxjax._core._axis import axis_size, varying
from relaxjax._core._random import fold, key_words
from relaxjax.activations._rows import Code, Words
from relaxjax.compression import Compressor, require_compressor

Leg = Callable[[jax.Array, Code | None], jax.Array]


class Ways(NamedTuple):
    """Arguments of a collective, checked.

    Attributes:
      name: the axis.
      workers: number of workers on it.
      forward: compressor of the forward pass; None: as it is.
      backward: that of the backward pass.
      words: uint32[2] for random compressors, else ().
    """

    name: str
    workers: int
    forward: Compressor | None
    backward: Compressor | None
    words: Words

    @property
    def exact(self) -> bool:
        """Whether nothing is encoded."""
        return self.forward is None and self.backward is None

    def call(self, x: jax.Array, forward: Leg, backward: Leg, way: int = 1) -> Any:
        """F(x), whose gradient is B, whose gradient is F, and so on.

        Each way draws apart, by its number.
        """
        compressor = self.forward if way % 2 else self.backward

        @jax.custom_vjp
        def both(x: jax.Array, words: Words) -> jax.Array:
            return forward(x, code_of(compressor, words, way))

        def pass_on(x: jax.Array, words: Words) -> tuple[jax.Array, Words]:
            return both(x, words), words

        def pull_back(words: Words, g: jax.Array) -> tuple[jax.Array, None]:
            turned = self._replace(words=words)
            return turned.call(g, backward, forward, way + 1), None

        both.defvjp(pass_on, pull_back)
        return both(x, self.words)


def ways(
    caller: str,
    x: Any,
    axis_name: Any,
    forward: Any,
    backward: Any,
    key: Any,
) -> Ways:
    """Checks the arguments of `caller`; alone on its axis, a worker encodes nothing."""
    if not isinstance(axis_name, str):
        raise TypeError(
            f"{caller}: axis_name={axis_name!r} must be one axis, a string; over "
            "several axes call it once for each"
        )
    if not jax.tree_util.all_leaves([x]):
        raise TypeError(
            f"{caller}: x is a {type(x).__name__}, and a message is of one array: call "
            f"it for each, as in jax.tree.map(lambda x: {caller}(x, ...), tree)"
        )
    n = axis_size(axis_name, caller)
    given = {"forward": forward, "backward": backward}
    for name, compressor in given.items():
        _check(caller, name, compressor)
    coded = [c for c in given.values() if c is not None]
    dtype = jnp.result_type(x)
    if coded and not jnp.issubdtype(dtype, jnp.floating):
        raise ValueError(
            f"{caller}: x is {dtype}, and codes are of real floats: cast it, or leave "
            "out forward= and backward="
        )
    words = _words(caller, [c.name for c in coded if c.random], key, axis_name)
    if n == 1 or jnp.size(x) == 0:
        forward = backward = None
    return Ways(axis_name, n, forward, backward, words)


def _check(caller: str, name: str, compressor: Any) -> None:
    require_compressor(caller, name, compressor, "mx('e4m3')")
    if compressor is not None and compressor.feedback.name != "none":
        raise ValueError(
            f"{caller}: {name}={compressor.name} with {compressor.feedback.name}: "
            "activations of the next step are of other examples, so that what is lost "
            "cannot come back; give the bare compressor"
        )


def _words(caller: str, random: list[str], key: Any, axis_name: str) -> Words:
    if not random:
        return ()
    if key is None:
        raise ValueError(
            f"{caller}: {random[0]} is random and key=None; pass key=, equal on all "
            "workers and another one for each call and step"
        )
    words = key_words(key)
    if axis_name in varying(words):
        raise ValueError(
            f"{caller}: key= differs over {axis_name!r}, and a receiver decodes with "
            "the sender's: pass the key from before relaxjax.worker_key"
        )
    return words


def code_of(compressor: Compressor | None, words: Words, way: int) -> Code | None:
    """The code of one way; each draws apart."""
    if compressor is None:
        return None
    if not compressor.random or isinstance(words, tuple):
        return Code(compressor, ())
    return Code(compressor, fold(words, way))


def require_dimension(caller: str, x: jax.Array, dimension: int, count: int) -> None:
    """Refuses a dimension that an array of `count` dimensions has not."""
    if not -count <= dimension < count:
        raise ValueError(
            f"{caller}: x has the shape {x.shape}, and no dimension {dimension}"
            + (f" of {count} in the result" if count != x.ndim else "")
        )


def parts_of(caller: str, x: jax.Array, n: int, dimension: int, tiled: bool) -> Any:
    """[n, ..] of x, its `dimension` cut into n (tiled), or n long and taken away."""
    require_dimension(caller, x, dimension, x.ndim)
    d = dimension % x.ndim
    size = x.shape[d]
    if size % n if tiled else size != n:
        rule = f"a multiple of {n}" if tiled else f"{n}"
        raise ValueError(
            f"{caller}: dimension {dimension} of x {x.shape} must be {rule}, the "
            f"number of workers, and is {size}: pad it"
            + ("" if tiled else ", or pass tiled=True")
        )
    if not tiled:
        return jnp.moveaxis(x, d, 0)
    cut = x.reshape(*x.shape[:d], n, size // n, *x.shape[d + 1 :])
    return jnp.moveaxis(cut, d, 0)


def joined(parts: jax.Array, dimension: int, tiled: bool) -> jax.Array:
    """Inverse of `parts_of`."""
    d = dimension % (parts.ndim - tiled)
    moved = jnp.moveaxis(parts, 0, d)
    return lax.collapse(moved, d, d + 2) if tiled else moved

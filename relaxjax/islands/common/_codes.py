"""Contributions as codes, and what codes lose, fed back.

For each leaf, with a for the common model, x for an island's own, C for the compressor
and e for the island's residual (`relaxjax.compression.error_feedback`, or `loco`):

    g = a - x,   p = g + e,   c = C(p)         codes of c travel
    e <- p - c   once a merge has c            else e stays: what was not merged is
                                               lost as it is without codes
    x^ = a - c                                 what whoever merges takes for x

    sum of all c that were merged + e = sum of their g          (nothing else is lost)

A residual dies with its process: one that comes back begins with e = 0, and at most
what one contribution has lost is gone. Feedback that needs the mean of all islands in
each step, such as EF21, has no place here.

Cost: an anchor and e, two models in float32 on the host; C there, once for each
contribution, and its inverse for whoever merges.
"""

import functools
import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from relaxjax._core._random import Keys, fold, key_words
from relaxjax.compression import COMPRESSORS, FEEDBACKS, Compressor, fed_back
from relaxjax.islands.common._channel import Fragment
from relaxjax.islands.common._files import Arrays

FED_BACK = ("ef14", "loco")
_Shapes = dict[str, jax.ShapeDtypeStruct]


def compressor_of(text: str) -> Compressor:
    """The compressor that a name is of, as in "quantize8+ef14".

    Raises:
      ValueError: it is not one, or its feedback needs all islands in each step.
    """
    name, *feedback = str(text).split("+")
    if name not in COMPRESSORS or len(feedback) > 1 or set(feedback) - set(FED_BACK):
        raise ValueError(
            f"islands: compressor={text!r} must be COMPRESSOR or COMPRESSOR+FEEDBACK, "
            f"as in 'quantize8+ef14', with one of {', '.join(COMPRESSORS)} and one of "
            f"{', '.join(FED_BACK)}"
        )
    made = COMPRESSORS[name]()
    return FEEDBACKS[feedback[0]](made) if feedback else made


class Plain:
    """An island's side without codes."""

    def took(self, fragment: Fragment, merged: bool) -> None:
        """Nothing is kept."""

    def encode(self, number: int, version: int, model: Arrays) -> Arrays:
        """The models as they are."""
        return model


class Coder:
    """An island's side: codes of what it contributes, and its residuals."""

    def __init__(self, compressor: str, seed: int, member: str):
        self._programs = _programs(compressor)
        self._seed, self._own = seed, _number(member)
        self._anchors: dict[int, Arrays] = {}
        self._memory: dict[int, Any] = {}
        self._next: dict[int, Any] = {}

    def took(self, fragment: Fragment, merged: bool) -> None:
        """A fragment was taken over; `merged`: with what was encoded last."""
        p, new = fragment.number, self._next.pop(fragment.number, None)
        if p not in self._memory:
            self._memory[p] = self._programs.init(fragment.anchor)
        if merged:
            self._memory[p] = new
        self._anchors[p] = fragment.anchor

    def encode(self, number: int, version: int, model: Arrays) -> Arrays:
        """The codes of a fragment's move since it was taken over."""
        draw = _draw(self._seed, version, self._own)
        with on_the_cpu():
            arrays, new = self._programs.encode(
                self._anchors[number], model, self._memory[number], draw
            )
        self._next[number] = jax.tree.map(np.asarray, new)
        return {name: np.asarray(arrays[name]) for name in sorted(arrays)}


def decoded(
    compressor: str, seed: int, version: int, anchor: Arrays, arrays: Arrays
) -> Arrays:
    """The models that codes stand for, in the dtypes of the anchor."""
    with on_the_cpu():
        model = _programs(compressor).decode(anchor, arrays, _draw(seed, version, 0))
    return {name: np.asarray(model[name]) for name in anchor}


def shapes(compressor: str, anchor: Mapping[str, Any]) -> _Shapes:
    """Names, shapes and dtypes of the codes of a fragment."""
    programs = _programs(compressor)
    memory = jax.eval_shape(programs.init, anchor)
    draw = _draw(0, 0, 0)
    made, _ = jax.eval_shape(programs.encode, anchor, anchor, memory, draw)
    return {name: made[name] for name in sorted(made)}


class _Programs(NamedTuple):
    init: Any
    encode: Any
    decode: Any


@functools.cache
def _programs(text: str) -> _Programs:
    """The compiled functions of a compressor, for any shapes."""
    compressor = compressor_of(text)
    feedback = compressor.feedback

    def init(anchor: Any) -> Any:
        return {n: feedback.init(jnp.zeros(a.size, a.dtype)) for n, a in anchor.items()}

    def encode(anchor: Any, model: Any, memory: Any, draw: Any) -> Any:
        arrays, after = {}, {}
        for i, (name, a) in enumerate(sorted(anchor.items())):
            g = (a - model[name].astype(a.dtype)).ravel()
            p = feedback.before(g, memory[name])
            noise = _noise(compressor, draw, i)
            payload = compressor.compress(p, noise)
            arrays |= {
                _part(name, j): x for j, x in enumerate(jax.tree.leaves(payload))
            }
            c = compressor.decompress(payload, p.size, noise)
            _, after[name] = fed_back(feedback, g, p, p - c, c, memory[name])
        return arrays, after

    def decode(anchor: Any, arrays: Any, draw: Any) -> Any:
        model = {}
        for i, (name, a) in enumerate(sorted(anchor.items())):
            noise = _noise(compressor, draw, i)
            flat = jax.ShapeDtypeStruct((a.size,), a.dtype)
            like = jax.eval_shape(compressor.compress, flat, noise)
            tree = jax.tree.structure(like)
            leaves = [arrays[_part(name, j)] for j in range(tree.num_leaves)]
            c = compressor.decompress(tree.unflatten(leaves), a.size, noise)
            model[name] = a - c.reshape(a.shape).astype(a.dtype)
        return model

    return _Programs(jax.jit(init), jax.jit(encode), jax.jit(decode))


def _part(name: str, number: int) -> str:
    return f"{name}#{number}"


def _draw(seed: int, version: int, own: int) -> np.ndarray:
    """What the random numbers of a contribution follow from."""
    return np.array([seed & 0xFFFFFFFF, version, own], np.uint32)


def _noise(compressor: Compressor, draw: Any, leaf: int) -> Keys | None:
    if not compressor.random:
        return None
    seed, version, own = draw
    shared = fold(fold(key_words(seed), version), leaf)
    return Keys(shared, fold(shared, own))


def _number(member: str) -> int:
    return int.from_bytes(hashlib.sha256(member.encode()).digest()[:4], "big")


def on_the_cpu() -> Any:
    """A context in which arrays of the host are computed on; the same bits anywhere."""
    try:
        return jax.default_device(jax.local_devices(backend="cpu")[0])
    except RuntimeError:  # JAX_PLATFORMS leaves it out
        return jax.default_device(None)

"""Slices of leaves, gathered and scattered as codes or as they are, over some axes.

As in ZeRO++ (Wang et al. 2023): qwZ, the weights gathered as codes, and qgZ, their
gradients scattered as codes, host by host and then between hosts.

A worker's slices [c_l] of some leaves l travel as one message, each leaf encoded by
itself. With n workers on the axes (outer, .., inner), each axis of m_a:

    gather, from the outer axis inwards:    C(s_i) of every worker i, passed on as it is
    scatter, from the inner axis outwards:  at each axis a worker receives C(p_j) of the
        m_a - 1 others of the slices that lie behind it, decodes, adds them in float32
        with its own, and takes the mean; what it then has, it encodes for the next axis

What stays is not compressed, except in a gather, where the owner decodes its own codes
too: so all workers have the same bits. What a scatter loses is booked with the sender,
and what it loses at an outer axis in the rows of its own inner place, m-fold:

    mean over workers of x = scattered mean + mean over workers of lost

Cost per worker, with P the bytes of all messages of one slice: a gather (n - 1) P, of
which the outermost axis of m has (m - 1) P; a scatter as much if each axis is encoded
alike, for which an inner axis packs the slices behind it together.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from relaxjax._core._tree import wide
from relaxjax.collectives.wire._messages import distribute, from_wire, gather, to_wire
from relaxjax.collectives.wire._payload import Codec, message, opened, places

Kind = jax.ShapeDtypeStruct
Codecs = Sequence[Codec | None]
"""The codec of each leaf; None: it travels as it is, with all leaves in one dtype."""


def gather_slices(
    codecs: Codecs, own: Sequence[jax.Array], names: Sequence[str], place: jax.Array
) -> jax.Array:
    """[.., bits]: the messages of the workers on these axes, the last axis in front.

    From this worker's slices [c] of some leaves; `place` is the number of its slice.
    """
    parts = [_packed(codec, x, place) for codec, x in zip(codecs, own, strict=True)]
    bits = jnp.concatenate(parts)
    for name in names:
        bits = gather(bits, name)
    return bits


def open_slices(
    codecs: Codecs, bits: jax.Array, kinds: Sequence[Kind]
) -> list[jax.Array]:
    """[n, c] for each leaf, from the messages of the slices 0 .. n - 1, [n, bits].

    `kinds` are shape and dtype of a slice; what was encoded comes out in float32.
    """
    ends = np.cumsum(slice_widths(codecs, kinds))[:-1].tolist()
    numbers = places(0, len(bits))

    def rows(codec: Codec | None, part: jax.Array, kind: Kind) -> jax.Array:
        if codec is None:
            return from_wire(part, kind.dtype)
        return jax.vmap(lambda b, i: opened(codec, b, kind.size, i))(part, numbers)

    parts = jnp.split(bits, ends, axis=1)
    return [rows(*each) for each in zip(codecs, parts, kinds, strict=True)]


def slice_widths(codecs: Codecs, kinds: Sequence[Kind]) -> list[int]:
    """Elements of each leaf's message."""

    def width(codec: Codec | None, kind: Kind) -> int:
        if codec is None:
            return kind.size
        place = Kind((), jnp.uint32)
        return jax.eval_shape(lambda x, i: _packed(codec, x, i), kind, place).size

    return [width(*each) for each in zip(codecs, kinds, strict=True)]


def scatter_slices(
    codecs: Codecs, rows: Sequence[jax.Array], names: Sequence[str], first: int = 0
) -> list[tuple[jax.Array, jax.Array]]:
    """This worker's slice of the mean over the workers, [c], and what was lost, [n, c].

    From the slices [n, c] of some leaves, n being the workers on these axes. Codes need
    float32. Stages of random codes are told apart by places from `first` on.
    """
    *outer, name = names
    m, j = lax.axis_size(name), lax.axis_index(name)
    counts = [len(x) // m for x in rows]
    chunks = [
        jnp.moveaxis(x.reshape(k, m, -1), 1, 0).reshape(m, -1)
        for k, x in zip(counts, rows, strict=True)
    ]
    pairs = [(x[0], jnp.zeros_like(x)) for x in chunks]
    if m > 1:
        pairs = _over_one_axis(codecs, chunks, name, places(first, m))
    later = [(mean, jnp.zeros_like(mean)) for mean, _ in pairs]
    if outer:
        means = [x.reshape(k, -1) for k, (x, _) in zip(counts, pairs, strict=True)]
        outward = [c.outward() if c and c.outward else c for c in codecs]
        later = scatter_slices(outward, means, outer, first + m)
    out = []
    for (_, lost), (mean, across), k in zip(pairs, later, counts, strict=True):
        lost = lax.dynamic_update_index_in_dim(lost, m * across.ravel(), j, 0)
        lost = jnp.moveaxis(lost.reshape(m, k, -1), 0, 1).reshape(m * k, -1)
        out.append((mean, lost))
    return out


def _over_one_axis(
    codecs: Codecs, chunks: Sequence[jax.Array], name: str, up: jax.Array
) -> list[tuple[jax.Array, jax.Array]]:
    """The mean of this worker's row of each [n, c], [c], and what was lost, [n, c].

    A worker's own row stays with it; in what was lost it holds no meaning.
    """
    i = lax.axis_index(name)
    sent = [_encoded(codec, x, up) for codec, x in zip(codecs, chunks, strict=True)]
    received = distribute(jnp.concatenate([bits for bits, _ in sent], axis=1), name)
    ends = np.cumsum([bits.shape[1] for bits, _ in sent])[:-1].tolist()
    parts = jnp.split(received, ends, axis=1)
    out = []
    for codec, x, (_, lost), part in zip(codecs, chunks, sent, parts, strict=True):
        each = _decoded(codec, part, Kind(x.shape[1:], x.dtype), up[i])
        mine = lax.dynamic_index_in_dim(x, i, keepdims=False).astype(each.dtype)
        each = lax.dynamic_update_index_in_dim(each, mine, i, 0)
        out.append(((each.sum(axis=0) / len(x)).astype(x.dtype), lost))
    return out


def _encoded(codec: Codec | None, rows: jax.Array, up: jax.Array) -> Any:
    """The messages of the rows [n, c], and what each loses, [n, c]."""
    if codec is None:
        return to_wire(rows), jnp.zeros_like(rows)
    sent = jax.vmap(lambda x, place: message(codec, x, place))(rows, up)
    size = rows.shape[1]
    decode = jax.vmap(lambda payload, place: codec.decode(payload, size, place))
    return sent.bits, rows - decode(sent.payload, up)


def _decoded(
    codec: Codec | None, bits: jax.Array, kind: Kind, place: jax.Array
) -> jax.Array:
    """What the other workers have for this one, [n, c], in float32 or wider."""
    if codec is None:
        return from_wire(bits, kind.dtype).astype(wide(kind.dtype))
    return jax.vmap(lambda row: opened(codec, row, kind.size, place))(bits)


def _packed(codec: Codec | None, x: jax.Array, place: jax.Array) -> jax.Array:
    if codec is None:
        return to_wire(x)
    return message(codec, x.astype(jnp.float32), place).bits

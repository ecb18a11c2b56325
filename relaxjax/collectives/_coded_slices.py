"""Slices of leaves, gathered and scattered as codes or as they are, over some axes.

Source: ZeRO++ (Wang et al. 2023): qwZ, the weights gathered as codes, and qgZ, their
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

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from relaxjax.collectives._compressed_two_shot import Codecs, Kind, scatter_rows
from relaxjax.collectives._messages import gather
from relaxjax.collectives._payload import Codec, message, opened, places
from relaxjax.collectives._wire_dtypes import from_wire, to_wire


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
        pairs = scatter_rows(codecs, chunks, name, places(first, m))
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


def _packed(codec: Codec | None, x: jax.Array, place: jax.Array) -> jax.Array:
    if codec is None:
        return to_wire(x)
    return message(codec, x.astype(jnp.float32), place).bits

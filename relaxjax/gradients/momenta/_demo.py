"""DeMo: the fast part of each worker's momentum, by cosine transform and top-k.

Source: DeMo (Peng et al. 2024), as the authors' program has it. For every leaf, cut
into blocks of h x w, with the momentum M_i of worker i, which never travels as a whole:

    M_i <- beta M_i + g_i
    c_i = H M_i W^T for each block            (cosine transforms of its two sides)
    t_i = the k largest |c_i| of each block, 0 elsewhere
    M_i <- M_i - H^T t_i W                    (0 where nothing but rounding is left)
    y   = at each place the mean of the t_i that are not 0 there
    out = sign(H^T y W)

H[a, b] = sqrt(2 / h) cos(pi a (2 b + 1) / (2 h)), orthonormal with H[0, b] =
sqrt(1 / h), and W likewise; h and w are the largest divisors up to `chunk` of the sides
of a leaf, cut in two where its sides are nearest. A vector is one row. Each worker
decodes all messages in the order of the workers: equal bits on all of them, and in
another order a sum that is rounded otherwise.

Their program scales g by the learning rate, which a sign does not see unless the rate
changes. A worker of weight 0 sends nothing and keeps its M_i; where something is not
finite, `out` shows it on all workers, and M_i stays.

Cost: (n - 1) payloads of 4 k + k log2(h w) / 8 bytes for each block, 5.5 k of 64 x 64,
so that bytes grow with n; n decodings of two floats per element; 6 (h + w) flops for
each. State: M_i.
"""

import math
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from relaxjax._core._arrays import require_dtypes, require_own
from relaxjax._core._axis import AxisName, axis_size
from relaxjax._core._checks import is_traced, require_whole
from relaxjax._core._extremes import largest
from relaxjax._core._merge_rules import MEAN
from relaxjax._core._tree import Layout, layout_of
from relaxjax._core._weights import is_absent, weigh_tree
from relaxjax._core.traced._marks import marked
from relaxjax.collectives import CODED_EXCHANGES
from relaxjax.compression import Compressor, Law, cosine_transform, top_k
from relaxjax.gradients.low_rank._low_rank import most_square
from relaxjax.gradients.mean._codec import as_codec

_CALLER = "demo"
_ROUNDING = 2.0**-20  # of two products of up to some hundred terms in float32


class DemoState(NamedTuple):
    """State of `demo`.

    Attributes:
      momentum: M_i, float32, like the params.
      layout: the tree that `init` saw.
    """

    momentum: Annotated[Any, MEAN]
    layout: Layout


class Blocks(NamedTuple):
    """How a leaf is cut: rows and columns of blocks, and their sides."""

    down: int
    h: int
    across: int
    w: int

    @property
    def size(self) -> int:
        """Number of elements of the leaf."""
        return self.down * self.h * self.across * self.w


def demo(
    axis_name: AxisName,
    k: int = 32,
    *,
    chunk: int = 64,
    decay: float = 0.999,
) -> optax.GradientTransformationExtraArgs:
    """Replaces updates by signs of what the workers' momenta have in common.

    It is reducer and momentum in one. Put `optax.sgd(4e-4)` behind it, without
    momentum; between them `optax.add_decayed_weights` for weight decay.

    Args:
      axis_name: the axis, or a tuple (outer, inner).
      k: number of coefficients of each block that are sent; all of smaller blocks.
      chunk: the longest side of a block.
      decay: beta, of what was not sent, in [0, 1].

    Returns:
      A gradient transformation, for real floating leaves, computed in float32. Its
      `update` takes `weight=`, this worker's number of examples.

    Raises:
      ValueError: `k` or `chunk` is not a whole number of 1 or more, `decay` not in
        [0, 1]; in `init` or `update`: a leaf is not real and floating, the tree is not
        the one that `init` saw, the compiler shards leaves.
      NameError: `update` outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp, relaxjax
      >>> tx = relaxjax.demo("data", 1)
      >>> gradients = jnp.array([[[1.0, 2.0], [1.0, 2.0]], [[1.0, -4.0], [1.0, -4.0]]])
      >>> update = lambda g: tx.update(g, tx.init(g))[0]
      >>> print(jax.vmap(update, axis_name="data")(gradients)[0])
      [[ 1. -1.]
       [ 1. -1.]]
    """
    require_whole(_CALLER, "k", k)
    require_whole(_CALLER, "chunk", chunk)
    if not is_traced(decay) and not 0 <= decay <= 1:
        raise ValueError(
            f"{_CALLER}: decay={decay} must be in [0, 1]: 0.999 is usual, 1 forgets "
            "nothing of what was not sent, 0 all of it"
        )

    def init(params: optax.Params) -> DemoState:
        require_dtypes(params, _CALLER, "it")
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.float32), params)
        return DemoState(zeros, layout_of(params))

    def update(updates, state, params=None, *, weight=None, **extra_args) -> Any:
        del params, extra_args
        require_own(_CALLER, axis_name, state.layout, updates)
        leaves, tree = jax.tree.flatten(weigh_tree(updates, weight, axis_name))
        cuts = [_blocks(x.shape, chunk) for x in leaves]
        absent = is_absent(weight)
        before = jax.tree.leaves(state.momentum)
        now = [
            decay * m + g.astype(jnp.float32)
            for m, g in zip(before, leaves, strict=True)
        ]
        c = map(_cosines, now, cuts)
        t, y = _exchange([jnp.where(absent, 0, x) for x in c], cuts, k, axis_name)
        after, out = [], []
        for i, cut in enumerate(cuts):
            sound = jnp.isfinite(y[i]).all()
            left = _left(now[i], _back(t[i], cut).reshape(now[i].shape), cut)
            after.append(jnp.where(absent | ~sound, before[i], left))
            signs = jnp.sign(_back(y[i], cut)).reshape(now[i].shape)
            out.append(jnp.where(sound, signs, jnp.nan))
        out = optax.tree.cast_like(tree.unflatten(out), updates)
        return out, DemoState(tree.unflatten(after), state.layout)

    return marked(_CALLER, "momenta", axis_name, init, update)


def _blocks(shape: tuple[int, ...], chunk: int) -> Blocks:
    vector = len(shape) < 2
    rows, columns = (1, math.prod(shape)) if vector else most_square("", shape)[1:]

    def divisor(side: int) -> int:
        return next(d for d in range(min(side, chunk), 0, -1) if side % d == 0)

    h, w = (divisor(side) if side else 1 for side in (rows, columns))
    return Blocks(rows // h, h, columns // w, w)


def _cosines(x: jax.Array, cut: Blocks) -> jax.Array:
    """The coefficients of a leaf, [blocks h w]."""
    blocks = x.reshape(cut.down, cut.h, cut.across, cut.w)
    sides = cosine_transform(cut.h), cosine_transform(cut.w)
    return _turned("yhxw,ah,bw->yxab", blocks, *sides).reshape(-1)


def _back(c: jax.Array, cut: Blocks) -> jax.Array:
    """The leaf, flat, of its coefficients."""
    blocks = c.reshape(cut.down, cut.across, cut.h, cut.w)
    sides = cosine_transform(cut.h), cosine_transform(cut.w)
    return _turned("yxab,ah,bw->yhxw", blocks, *sides).reshape(-1)


def _left(now: jax.Array, sent: jax.Array, cut: Blocks) -> jax.Array:
    """M_i without what was sent: of all that it was, what rounding leaves is 0.

    A sign would make a full step of that, once gradients are 0.
    """
    whole = now.reshape(cut.down, cut.h, cut.across, cut.w)
    noise = _ROUNDING * largest(whole, (1, 3), keepdims=True)
    noise = jnp.broadcast_to(noise, whole.shape).reshape(now.shape)
    left = now - sent
    return jnp.where(jnp.abs(left) <= noise, 0, left)


def _turned(how: str, *arrays: jax.Array) -> jax.Array:
    return jnp.einsum(how, *arrays, precision=jax.lax.Precision.HIGHEST)


def _exchange(
    c: list[jax.Array], cuts: list[Blocks], k: int, axis_name: AxisName
) -> tuple[list[jax.Array], list[jax.Array]]:
    """t_i and y of each leaf, from one message.

    With the values travels nothing that says where they are not 0: what is decoded is
    both, in one array, and the mean of the second half is the share of the workers that
    sent something.
    """
    if not any(cut.size for cut in cuts):
        return c, c
    code = _chosen(cuts, k)
    x = jnp.concatenate([*c, jnp.zeros(0, jnp.float32)])
    pair = jnp.concatenate([x, jnp.zeros_like(x)])
    if axis_size(axis_name, _CALLER) == 1:
        mean = code.decompress(code.compress(pair, None), pair.size, None)
        t, y = mean[: x.size], mean[: x.size]
    else:
        run = CODED_EXCHANGES["one_shot"].run
        mean, lost = run(pair, axis_name, as_codec(code, (), jnp.uint32(0)))
        value, share = jnp.split(mean, 2)
        t, y = x - lost[: x.size], value / jnp.where(share == 0, 1, share)
    ends = np.cumsum([cut.size for cut in cuts])[:-1]
    return jnp.split(t, ends), jnp.split(y, ends)


def _chosen(cuts: list[Blocks], k: int) -> Compressor:
    """Top-k of each block of all leaves; decodes to values, and to where they are."""
    some = [cut for cut in cuts if cut.size]
    ends = [int(end) for end in np.cumsum([cut.size for cut in some])]
    codes = [
        top_k(min(1.0, k / (cut.h * cut.w)), block_size=cut.h * cut.w) for cut in some
    ]

    def compress(pair, noise):
        parts = jnp.split(pair, ends)
        return [code.compress(x, noise) for code, x in zip(codes, parts, strict=False)]

    def decompress(payloads, size, noise):
        del size
        parts = zip(codes, payloads, some, strict=True)
        x = jnp.concatenate([c.decompress(p, cut.size, noise) for c, p, cut in parts])
        return jnp.concatenate([x, (x != 0).astype(jnp.float32)])

    return Compressor(_CALLER, compress, decompress, Law(), algorithm="one_shot")

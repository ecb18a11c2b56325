"""ARC-Top-K: of each matrix the rows that matter to all workers, in a plain sum.

Source: Chen et al. 2025 (ARC-Top-K), its algorithm 1 inside EF21 with momentum
(Fatkhullin, Tyurin, Richtarik 2023). For every leaf, as an n x m matrix, with the
gradient g_i of worker i, from v_i = h_i = G = 0:

    v_i <- (1 - eta) v_i + eta g_i
    p_i = v_i - h_i
    s   = mean_i(p_i V)                              (first message)
    K   = the k rows with the largest |s|,  k = ceil(density n)
    c_i = p_i in the rows K, 0 elsewhere             (second message: its mean)
    h_i <- h_i + c_i,   G <- G + mean_i(c_i),   out = G

V, m x r, is drawn anew in each step, alike on all workers: E |s|^2 of a row is r times
the squared length of that row of mean_i(p_i). So all choose the same rows by what they
have in common, no index travels, and rows are added, not gathered.

    G = mean_i(h_i), always
    out and mean_i(v_i) are what one worker has from the mean gradient and the same V
    |mean_i(v_i) - G|^2 falls by the factor 1 - k / n or more where K are its longest
    rows, in a step in which mean_i(v_i) stays as it is

Vectors and scalars, and matrices for which r n + k m is not less than n m, travel whole
beside the sketches: there k = n. The authors' program sends the first gradients whole,
where here v, h and G grow from 0, as in `relaxjax.compression.ef21_sgdm`.

V is divided by m, so that no sketch is out of range where its mean is not. A worker of
weight 0 is absent: c_i = 0, and v_i and h_i stay. Where a leaf is not finite on one
worker, `out` is NaN there on all of them, and its v, h and G stay.

Cost: r n + k m floats for each matrix in two messages, with 16 or 8 bits for the
second; 2 r n m flops. State: v, h and G, each of the size of the gradient.
"""

from collections.abc import Hashable, Sequence
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from relaxjax._core._arrays import require_dtypes, require_own
from relaxjax._core._axis import AxisName
from relaxjax._core._checks import is_off, require_fraction, require_whole
from relaxjax._core._extremes import largest
from relaxjax._core._merge_rules import EQUAL, MEAN
from relaxjax._core._random import common_key, normals
from relaxjax._core._tree import Layout, layout_of
from relaxjax._core._weights import among_present, is_absent, weigh_wide
from relaxjax._core.layouts._sharding import sharded_over
from relaxjax._core.traced._marks import marked
from relaxjax.compression import check_density, over
from relaxjax.gradients.low_rank._factor_mean import (
    checked_bits,
    for_each_layout,
    mean_in_bits,
)
from relaxjax.gradients.low_rank._low_rank import AsMatrices, product
from relaxjax.gradients.momenta._row_cuts import RowCut, row_cuts

_CALLER = "arc_top_k"


class ArcTopKState(NamedTuple):
    """State of `arc_top_k`.

    Attributes:
      step: uint32, the number of steps; equal on all workers.
      momentum: v, of this worker, float32, like the params.
      known: h, what all know of this worker, likewise.
      mean: G, the mean of all h, likewise; equal on all workers.
      layout: the tree that `init` saw.
    """

    step: Annotated[jax.Array, EQUAL]
    momentum: Annotated[Any, MEAN]
    known: Annotated[Any, MEAN]
    mean: Annotated[Any, MEAN]
    layout: Layout


class Sent(NamedTuple):
    """Attributes: own: c_i; mean: of all c_i; sound: bool[], whether it is finite."""

    own: jax.Array
    mean: jax.Array
    sound: jax.Array


class Memory(NamedTuple):
    """What a leaf keeps. Attributes: momentum: v_i; known: h_i; mean: G."""

    momentum: jax.Array
    known: jax.Array
    mean: jax.Array


def arc_top_k(
    axis_name: AxisName,
    density: float = 0.1,
    *,
    rank: int = 4,
    eta: float = 0.1,
    bits: int = 32,
    algorithm: str = "auto",
    as_matrices: AsMatrices | None = None,
    seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
    """Replaces updates by an estimate of their mean, of which few rows move in a step.

    Put it before the optimizer. Momentum is inside: `optax.sgd` behind it needs none.

    Args:
      axis_name: the axis, or a tuple (outer, inner).
      density: share of each matrix's rows that are sent, in (0, 1]; rounded up to whole
        rows, at least one.
      rank: r, the number of columns of a sketch; more choose better, and cost r floats
        for each row.
      eta: weight of the new gradient in the momentum, in (0, 1]; 1 is EF21 without it,
        for full batches.
      bits: bits per float in the second message: 32, 16 (bfloat16) or 8 (codes of
        `relaxjax.compression.quantize`). What is lost stays in v - h.
      algorithm: the algorithm that adds rows, one of `relaxjax.all_reduce`; with fewer
        bits than 32 one that carries codes, and "auto" is "two_shot".
      as_matrices: see `relaxjax.power_sgd`: (batch, rows, columns) of a leaf.
      seed: seed of V, the same for all workers.

    Returns:
      A gradient transformation, for real floating leaves, computed in float32. Its
      `update` takes `weight=`, this worker's number of examples.

    Raises:
      ValueError: `density` or `eta` is not in (0, 1], `rank` not a whole number of 1 or
        more, `bits` not 32, 16 or 8, the algorithm unknown or without codes; in `init`
        or `update`: `as_matrices` does not fit, a leaf is not real and floating, the
        tree is not the one that `init` saw, the compiler shards leaves.
      NameError: `update` outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp, relaxjax
      >>> tx = relaxjax.arc_top_k("data", 0.5, rank=1, eta=1.0)
      >>> gradients = jnp.array([[[5.0] * 3, [1.0] * 3], [[3.0] * 3, [-9.0] * 3]])
      >>> update = lambda g: tx.update(g, tx.init(g))[0]
      >>> print(jax.vmap(update, axis_name="data")(gradients)[0])
      [[4. 4. 4.]
       [0. 0. 0.]]
    """
    check_density(density, _CALLER)
    require_whole(_CALLER, "rank", rank)
    require_fraction(_CALLER, "eta", eta, ": 1 is EF21 without momentum")
    how = checked_bits(_CALLER, axis_name, algorithm, bits)
    first = mean_in_bits(_CALLER, axis_name, how, 32)
    second = mean_in_bits(_CALLER, axis_name, how, bits)

    def cuts_of(tree: Any) -> list[RowCut | None]:
        return row_cuts(tree, density, rank, as_matrices, _CALLER)

    def init(params: optax.Params) -> ArcTopKState:
        require_dtypes(params, _CALLER, "it")
        cuts_of(params)
        v, h, mean = (optax.tree.zeros_like(params, dtype=jnp.float32) for _ in "vhG")
        return ArcTopKState(jnp.uint32(0), v, h, mean, layout_of(params))

    def update(updates, state, params=None, *, weight=None, **extra_args) -> Any:
        del params, extra_args
        require_own(_CALLER, axis_name, state.layout, updates)
        g, tree = jax.tree.flatten(updates)
        if weight is not None:  # G has what absent workers have sent before
            w = among_present(weight, axis_name, f"{_CALLER}: weight")
            g = [weigh_wide(x, w) for x in g]
        held = map(jax.tree.leaves, state[1:4])
        before = [Memory(*leaf) for leaf in zip(*held, strict=True)]
        absent = is_absent(weight)
        v = [
            (1 - eta) * m.momentum + eta * x.astype(jnp.float32)
            for m, x in zip(before, g, strict=True)
        ]
        p = [jnp.where(absent, 0, a - m.known) for a, m in zip(v, before, strict=True)]
        cuts = cuts_of(updates)
        sketch = _projection(cuts, seed, state.step)
        layouts = sharded_over(updates)
        sent = _common_rows(p, cuts, layouts, sketch, first, second) if g else []
        each = zip(before, v, sent, strict=True)
        after = [_moved(m, momentum, s, absent) for m, momentum, s in each]
        out = [
            jnp.where(s.sound, m.mean, jnp.nan)
            for m, s in zip(after, sent, strict=True)
        ]
        out = optax.tree.cast_like(tree.unflatten(out), updates)
        v, h, mean = (tree.unflatten([m[i] for m in after]) for i in range(3))
        return out, ArcTopKState(state.step + 1, v, h, mean, state.layout)

    side = "gradients" if is_off(1 - eta) else "momenta"
    return marked(_CALLER, side, axis_name, init, update)


def _moved(m: Memory, v: jax.Array, sent: Sent, absent: jax.Array) -> Memory:
    """The memory after a step, which one that is not finite leaves as it was."""
    own, shared, sound = sent
    return Memory(
        jnp.where(absent | ~sound, m.momentum, v),
        jnp.where(sound, m.known + own, m.known),
        jnp.where(sound, m.mean + shared, m.mean),
    )


def _projection(cuts: list[RowCut | None], seed: int, step: jax.Array) -> jax.Array:
    """float32[m, r] for the longest rows, of which shorter ones take a part."""
    most = max((cut.columns for cut in cuts if cut), default=0)
    rank = max((cut.rank for cut in cuts if cut), default=0)
    key = jax.random.fold_in(common_key(seed), step)
    return normals(key, [(most, rank)])[0]


def _common_rows(
    p: list[jax.Array],
    cuts: list[RowCut | None],
    layouts: Sequence[Hashable],
    v: jax.Array,
    first: Any,
    second: Any,
) -> list[Sent]:
    """What travels of p: the same rows on all workers, and whole leaves."""
    rows = {i: cut for i, cut in enumerate(cuts) if cut}
    whole = [i for i in range(len(p)) if i not in rows]
    layouts = [layouts[i] for i in [*rows, *whole]]
    x = {i: cut.of(p[i]) for i, cut in rows.items()}
    sketches = [product(x[i], v[: c.columns] / c.columns) for i, c in rows.items()]
    means, _ = for_each_layout(first, layouts)([*sketches, *(p[i] for i in whole)])
    s, in_full = means[: len(rows)], means[len(rows) :]
    places = [_longest(a, c.chosen) for a, c in zip(s, rows.values(), strict=True)]
    own = [jnp.take_along_axis(x[i], k, 1) for i, k in zip(rows, places, strict=True)]
    shared, lost = for_each_layout(second, layouts)(own)
    sent = {}
    for j, (i, cut) in enumerate(rows.items()):
        sound = jnp.isfinite(s[j]).all() & jnp.isfinite(shared[j]).all()
        back = (own[j] - lost[j], shared[j])
        mine, mean = (cut.spread(a, places[j], p[i].shape) for a in back)
        sent[i] = Sent(mine, mean, sound)
    for i, mean in zip(whole, in_full, strict=True):
        sent[i] = Sent(p[i], mean, jnp.isfinite(mean).all())
    return [sent[i] for i in range(len(p))]


def _longest(s: jax.Array, k: int) -> jax.Array:
    """int32[batch, k, 1]: the rows of [batch, n, r] with the largest norms."""
    s = over(s, largest(s, (1, 2), keepdims=True))  # no square is out of range
    return jax.lax.top_k(jnp.sum(s * s, 2), k)[1][:, :, None]

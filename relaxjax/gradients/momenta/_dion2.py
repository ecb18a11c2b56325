"""Dion2: Muon of a share of the rows, chosen and sent by all workers together.

Sources: Dion2 (Ahn et al. 2025), as the authors' program has it, which shards matrices
over devices; Amsel et al. 2025 (the Polar Express); Li et al. 2025 (NorMuon). Here
momentum is each worker's own, and the chosen rows alone travel. For every leaf, as an
n_in x n_out matrix with the momentum M_i of worker i, by its rows, or by its columns
where these are fewer:

    M_i <- M_i + g_i
    s   = mean_i of the L1 norms of the rows of M_i        (first message)
    K   = the ceil(alpha rows) rows with the largest s     (the same on all workers)
    U   = mean_i(M_i[K])                                   (second message)
    M_i[K] <- mu M_i[K]
    out[K] = sqrt(n_out / n_in) orth(U),   out is 0 elsewhere

orth is five steps of Newton and Schulz on U / (1.01 |U|), with a, b, c of the Polar
Express: A = X X^T, X <- a X + b A X + c A A X. Singular values from |U| / 1000 to |U|
become 0.87 to 1.13; those of X must not be above 1, where five steps make 9244 of
1.0001, hence 1.01. NorDion2 (`neuron_decay`), as NorMuon, then lets each neuron,
a column, move about as far:

    v[K] <- b v[K] + (1 - b) mean of squares of each column of O = orth(U)
    O    <- O / sqrt(v[K]),  scaled back to its norm before

The mean of all M_i, and `out`, are what the rule makes of the mean gradient with the
same rows. The norm of the mean would be another choice; s is never less than it, and
keeps each M_i bounded for bounded gradients: a row in which workers disagree is chosen
as well, and shrinks. For momentum, weights and faults see
`relaxjax.gradients.momenta._decoupled_momentum`.

Cost: a float for each row, then alpha n_in n_out floats, in two messages, with 16 or 8
bits for the second. 5 Newton-Schulz steps of alpha of Muon's rows. State: M_i.
"""

import functools
import math
from collections.abc import Hashable, Sequence
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from relaxjax._core._axis import AxisName
from relaxjax._core._checks import require_fraction, require_known
from relaxjax._core._extremes import largest
from relaxjax._core._merge_rules import EQUAL, MEAN
from relaxjax._core._tree import Layout
from relaxjax.compression import over
from relaxjax.gradients.low_rank._low_rank import AsMatrices, Matrices, product
from relaxjax.gradients.momenta._decoupled_momentum import (
    MomentumSpec,
    Part,
    all_finite,
    by_shape,
    momentum_reducer,
    require_decay,
)

_CALLER = "dion2"
_POLAR_EXPRESS = (
    (8.28721202, -23.59588652, 17.30038731),
    (4.10705911, -2.94784992, 0.54484311),
    (3.94869085, -2.90890212, 0.55181914),
    (3.31841966, -2.48848802, 0.51004894),
    (2.30065202, -1.66890398, 0.41880731),
)
_MARGIN = 1.01
_EPSILON = 1e-8  # beside root mean squares of orthonormal columns


class Dion2State(NamedTuple):
    """State of `dion2`.

    Attributes:
      step: uint32, the number of steps; equal on all workers.
      momentum: M_i, float32, like the params.
      variance: v, float32[batch, columns], equal on all workers; a scalar without
        `neuron_decay`.
      layout: the tree that `init` saw.
    """

    step: Annotated[jax.Array, EQUAL]
    momentum: Annotated[Any, MEAN]
    variance: Annotated[Any, EQUAL]
    layout: Layout


def dion2(
    axis_name: AxisName,
    fraction: float = 0.25,
    *,
    decay: float = 0.95,
    neuron_decay: float | None = None,
    bits: int = 32,
    algorithm: str = "auto",
    as_matrices: AsMatrices | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Replaces each worker's updates by orthonormal rows of the mean momentum.

    It is reducer and momentum in one, for matrices. Put `optax.sgd(0.01)` behind it,
    without momentum; between them `optax.add_decayed_weights(0.01)` for weight decay.
    Give vectors, embeddings and the head to another optimizer, by `optax.partition`.

    Args:
      axis_name: the axis, or a tuple (outer, inner).
      fraction: alpha, in (0, 1]; 1 is Muon with all of the momentum sent.
      decay: mu, of what was sent, in [0, 1).
      neuron_decay: b, in [0, 1), for NorDion2, which chooses columns; None: Dion2.
      bits: bits per float in the second message: 32, 16 (bfloat16) or 8 (codes of
        `relaxjax.compression.quantize`). What is lost stays in the momentum.
      algorithm: the algorithm that adds rows, one of `relaxjax.all_reduce`; with fewer
        bits than 32 one that carries codes, and "auto" is "two_shot".
      as_matrices: see `relaxjax.power_sgd`: (batch, n_in, n_out) of a leaf.

    Returns:
      A gradient transformation, for real floating leaves of two dimensions or more,
      computed in float32. Its `update` takes `weight=`, this worker's number of
      examples.

    Raises:
      ValueError: `fraction` is not in (0, 1], `decay` or `neuron_decay` not in [0, 1),
        `bits` not 32, 16 or 8, the algorithm unknown or without codes; in `init` or
        `update`: a leaf is not a matrix, not real and floating, `as_matrices` does not
        fit, the tree is not the one that `init` saw, the compiler shards leaves.
      NameError: `update` outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp, relaxjax
      >>> tx = relaxjax.dion2("data", 0.5)
      >>> gradients = jnp.array([[[5.0, 0.0], [0.0, 1.0]], [[3.0, 0.0], [0.0, 1.0]]])
      >>> update = lambda g: tx.update(g, tx.init(g))[0]
      >>> print(jax.vmap(update, axis_name="data")(gradients)[0].round(1))
      [[1.1 0. ]
       [0.  0. ]]
    """
    spec = MomentumSpec(_CALLER, axis_name, decay, bits, algorithm, as_matrices)
    require_known(_CALLER, "fraction", fraction)
    require_fraction(_CALLER, "fraction", fraction)
    if neuron_decay is not None:
        require_decay(_CALLER, "neuron_decay", neuron_decay)

    def begin(matrices: list[Matrices]) -> list[jax.Array]:
        normed = neuron_decay is not None
        shapes = [(m.batch, m.columns) if normed else () for m in matrices]
        return [jnp.zeros(shape, jnp.float32) for shape in shapes]

    spec = spec.checked()
    step = functools.partial(
        _one_step, spec=spec, fraction=fraction, neuron_decay=neuron_decay
    )
    return momentum_reducer(spec, begin=begin, one_step=step, state_of=Dion2State)


def _one_step(
    x: list[jax.Array],
    matrices: list[Matrices],
    variance: list[jax.Array],
    count: jax.Array,
    layouts: Sequence[Hashable],
    *,
    spec: MomentumSpec,
    fraction: float,
    neuron_decay: float | None,
) -> list[Part]:
    """What comes out, is sent and is kept of M_i, leaf by leaf."""
    del count
    flips = [neuron_decay is not None or m.columns < m.rows for m in matrices]
    lines = [m.mT if flip else m for m, flip in zip(x, flips, strict=True)]
    norms, _ = spec.mean(32, layouts)([jnp.abs(m).sum(2) for m in lines])  # s
    most = [math.ceil(round(fraction * m.shape[1], 6)) for m in lines]
    places = [jax.lax.top_k(s, k)[1] for s, k in zip(norms, most, strict=True)]  # K
    own = [
        jnp.take_along_axis(m, k[:, :, None], 1)
        for m, k in zip(lines, places, strict=True)
    ]
    mean, lost = spec.mean(spec.bits, layouts)(own)  # U

    def one(i: int) -> Part:
        def spread(chosen: jax.Array) -> jax.Array:
            batch = jnp.arange(len(chosen))[:, None]
            full = jnp.zeros_like(lines[i]).at[batch, places[i]].set(chosen)
            return full.mT if flips[i] else full

        o, v = orthonormal(mean[i]), variance[i]
        if neuron_decay is not None:
            o, v = _alike(o, v, places[i], neuron_decay)
        sound = all_finite(norms[i], mean[i])
        return Part(by_shape(x[i]) * spread(o), spread(own[i] - lost[i]), v, sound)

    return [one(i) for i in range(len(x))]


def _alike(
    o: jax.Array, v: jax.Array, places: jax.Array, decay: float
) -> tuple[jax.Array, jax.Array]:
    """Neurons [batch, k, n] of about the same length, and v."""
    batch = jnp.arange(len(o))[:, None]
    new = decay * v[batch, places] + (1 - decay) * jnp.mean(o * o, 2)
    even = o / (jnp.sqrt(new)[:, :, None] + _EPSILON)
    before, after = (jnp.linalg.norm(a, axis=(1, 2), keepdims=True) for a in (o, even))
    return even * before / jnp.where(after > 0, after, 1), v.at[batch, places].set(new)


def orthonormal(u: jax.Array) -> jax.Array:
    """U V^T of u = U S V^T [batch, k, n], nearly; 0 where u is 0."""
    x = over(u, largest(u, (1, 2), keepdims=True))  # no square of it is out of range
    norm = jnp.linalg.norm(x, axis=(1, 2), keepdims=True)
    x = x / (_MARGIN * jnp.where(norm > 0, norm, 1))
    wide = u.shape[1] <= u.shape[2]
    x = x if wide else x.mT
    for a, b, c in _POLAR_EXPRESS:
        gram = product(x, x.mT)
        x = a * x + product(b * gram + c * product(gram, gram), x)
    return x if wide else x.mT

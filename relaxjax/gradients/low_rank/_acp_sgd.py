"""ACP-SGD: the factors of PowerSGD by turns, one of them a step.

Source: Zhang et al. 2023 (ACP-SGD), as the authors' program has it. For every leaf, as
an n x m matrix, with its residual e_i, in even steps:

    M_i = g_i + e_i
    Q^  = an orthonormal basis of Q     (known before the backward pass)
    P_i = M_i Q^,   P = mean_i(P_i)     (the only message)
    out = P Q^^T
    e_i = M_i - P_i Q^^T

and in odd steps the same of M_i^T, with Q_i, Q in the place of P_i, P:

    P^  = an orthonormal basis of P
    Q_i = M_i^T P^,   Q = mean_i(Q_i)
    out = P^ Q^T
    e_i = M_i - P^ Q_i^T

    out + mean_i(e_i) = mean_i(M_i):  the law of `power_sgd`; two steps are one of its
                                      subspace iterations

At full rank, r = m <= n, out is the mean itself in even steps; in odd ones too if the
matrix is square, else n - m directions of P^ are missing.

Each worker takes back what it sent itself, so that its own part of a direction that was
sent does not wait. What P_i or Q_i lose on their way, in 16 bits or 8, it puts back
into e_i. An absent worker (weight 0) has M_i = 0 and keeps its e_i.

A direction that P or Q has lost is drawn anew, see
`relaxjax.gradients.low_rank._low_rank`.

Which side of a leaf is P, the longer or the shorter, is free: sides are dealt so that
the messages of even and odd steps are as long as each other, but for a few elements.
The shorter one is padded; so turns are one program, whose collective stands outside of
every condition. Leaves that a rank would not make smaller travel beside it each step.

Cost: r (n + m) / 2 floats per matrix, and the other leaves, in exactly one message a
step; 6 r n m flops per matrix, and a QR that waits for no message. State: the residual,
of the gradient's size, and r (n + m) floats per matrix.
"""

import functools
from collections.abc import Hashable, Sequence
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from relaxjax._core._axis import AxisName
from relaxjax._core._merge_rules import EQUAL, MEAN
from relaxjax._core._owed import OWED
from relaxjax._core._phases import Clock
from relaxjax._core._random import common_key, normals
from relaxjax._core._tree import Layout
from relaxjax._core.layouts._sharding import alike
from relaxjax.gradients.low_rank._alternate import alternate
from relaxjax.gradients.low_rank._factor_mean import CODES, factor_mean_fn
from relaxjax.gradients.low_rank._low_rank import AsMatrices, Matrices, Mean
from relaxjax.gradients.low_rank._low_rank_reducer import LowRank, low_rank_reducer
from relaxjax.gradients.low_rank._low_rank_sides import views_of

_CALLER = "acp_sgd"


class AcpSGDState(NamedTuple):
    """State of `acp_sgd`.

    Attributes:
      clock: in phase 0 gradients travel as they are; P travels after even counts.
      residual: e, float32, like the params; a scalar where nothing is lost.
      left: P, float32[batch, side, r], equal on all workers; a scalar where not
        compressed. Its side is the leaf's rows or its columns.
      right: Q, likewise, of the other side.
      layout: the tree that `init` saw.
    """

    clock: Clock
    residual: Annotated[Any, MEAN, OWED]
    left: Annotated[Any, EQUAL]
    right: Annotated[Any, EQUAL]
    layout: Layout


def acp_sgd(
    axis_name: AxisName,
    *,
    rank: int = 4,
    start_after: int = 0,
    min_compression: float = 1.0,
    as_matrices: AsMatrices | None = None,
    algorithm: str = "auto",
    bits: int = 32,
    specs: Any = None,
    seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
    """Replaces the updates of each worker by a low-rank approximation of their mean.

    Half the bytes of `power_sgd` of the same rank, in one message a step where that
    sends two. Put it before the optimizer. What is lost is added to the next step's
    updates.

    Args:
      axis_name: the axis, or a tuple (outer, inner).
      rank: r, of every approximation; it takes some more than `power_sgd` does.
      start_after: see `relaxjax.power_sgd`.
      min_compression: see `relaxjax.power_sgd`.
      as_matrices: see `relaxjax.power_sgd`.
      algorithm: the algorithm that adds P or Q, one of `relaxjax.all_reduce`; with
        fewer bits than 32 one that carries codes, and "auto" is "two_shot".
      bits: bits per float in a message: 32, 16 (bfloat16), or 8 (codes of
        `relaxjax.compression.quantize`). What is lost on the way is in the residuals,
        those of the other leaves too.
      specs: see `relaxjax.power_sgd`.
      seed: seed of the first P and Q, the same for all workers.

    Returns:
      A gradient transformation, for real floating leaves, computed in float32. Its
      `update` takes `weight=`, this worker's number of examples.

    Raises:
      ValueError: `rank` is below 1, `start_after` or `min_compression` below 0, `bits`
        not 32, 16 or 8, the algorithm unknown or without codes; in `init` or `update`:
        this rank makes no leaf smaller, `as_matrices` does not fit, a leaf is not real
        and floating, the tree is not the one that `init` saw, the compiler shards
        leaves and `specs` is missing.
      NameError: `update` outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp, optax, relaxjax
      >>> tx = optax.chain(relaxjax.acp_sgd("data", rank=1), optax.sgd(1.0))
      >>> u, v = jnp.arange(1.0, 4.0), jnp.ones(5)
      >>> gradients = jnp.stack([jnp.outer(u, v), jnp.outer(3 * u, v)])  # two workers
      >>> def two_steps(g):
      ...     first, state = tx.update(g, tx.init(g))
      ...     return first + tx.update(g, state)[0]
      >>> print(jax.vmap(two_steps, axis_name="data")(gradients)[0, :, 0].round())
      [ -4.  -8. -12.]
    """
    spec = LowRank(
        _CALLER, axis_name, rank, start_after, min_compression, as_matrices, bits, specs
    )
    compressor = CODES[spec.checked().bits]
    algorithm = spec.algorithm(algorithm, compressor)
    coded = compressor is not None
    return low_rank_reducer(
        spec,
        algorithm,
        begin=functools.partial(_begin, seed=seed, coded=coded),
        one_step=functools.partial(
            _one_step,
            spec=spec,
            mean=factor_mean_fn(axis_name, algorithm, compressor),
            coded=coded,
            seed=seed,
        ),
        state_of=AcpSGDState,
    )


def _begin(
    params: Any,
    matrices: list[Matrices | None],
    layouts: Sequence[Hashable],
    *,
    seed: int,
    coded: bool,
) -> tuple[Any, Any, Any]:
    """The residuals, P and Q before the first step."""
    leaves, tree = jax.tree.flatten(params)
    pairs = list(zip(leaves, views_of(matrices, layouts), strict=True))
    shapes = [
        (x.size // (v.matrices.rows * v.matrices.columns), side, v.matrices.rank)
        for x, v in pairs
        if v
        for side in v.sides
    ]
    drawn = iter(normals(common_key(seed), shapes))
    residual = [jnp.zeros(x.shape if v or coded else (), jnp.float32) for x, v in pairs]
    factors = [
        [next(drawn) if v else jnp.zeros((), jnp.float32) for _ in ("P", "Q")]
        for _, v in pairs
    ]
    left, right = ([pair[k] for pair in factors] for k in (0, 1))
    return tree.unflatten(residual), tree.unflatten(left), tree.unflatten(right)


def _one_step(
    trees: Any,
    count: jax.Array | int = 0,
    absent: jax.Array | bool = False,
    part: jax.Array | float = 1.0,
    *,
    spec: LowRank,
    mean: Mean,
    layouts: Sequence[Hashable],
    coded: bool,
    seed: int,
) -> Any:
    """Updates, residuals, P and Q of one device's shards, after step `count`."""
    del part  # each takes back its own
    tree = jax.tree.structure(trees[0])
    leaves, e, p, q = map(jax.tree.leaves, trees)
    views = views_of(spec.matrices(trees[0]), layouts)
    wide = [u.astype(jnp.float32) for u in leaves]
    given = [jnp.where(absent, 0, u + r) for u, r in zip(wide, e, strict=True)]
    key = jax.random.fold_in(common_key(seed), count)
    for few in alike(layouts):  # a message each
        low = {i: v for i in few if (v := views[i])}
        plain = [i for i in few if i not in low]
        x = [v.of(given[i]) for i, v in low.items()]
        rest = [given[i] if coded else wide[i] for i in plain]
        out, missed, p_low, q_low, means, losts = alternate(
            x, [p[i] for i in low], [q[i] for i in low], rest, mean, count, key
        )
        for k, (i, v) in enumerate(low.items()):
            wide[i] = v.back(out[k], e[i].shape)
            p[i], q[i] = p_low[k], q_low[k]
            e[i] = _kept(absent, e[i], v.back(missed[k], e[i].shape))
        for k, i in enumerate(plain):
            wide[i] = means[k]
            if coded:
                lost_here = jnp.where(jnp.isfinite(means[k]), losts[k], jnp.nan)
                e[i] = _kept(absent, e[i], lost_here)
    new = [y.astype(u.dtype) for y, u in zip(wide, leaves, strict=True)]
    return tuple(map(tree.unflatten, (new, e, p, q)))


def _kept(absent: jax.Array | bool, e: jax.Array, lost: jax.Array) -> jax.Array:
    """The next residual: what was lost, and of an absent worker what it had."""
    new = jnp.where(absent, e, 0) + lost
    return jnp.where(jnp.isfinite(new), new, e)

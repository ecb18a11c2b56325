"""PowerSGD: the mean gradient, as a matrix of low rank.

Source: Vogels, Karimireddy, Jaggi 2019 (PowerSGD); one step of subspace iteration, warm
started. For every leaf, as an n x m matrix, with its residual e_i:

    M_i = g_i + e_i
    P   = mean_i(M_i Q)                 (first message)
    P^  = an orthonormal basis of P
    Q   = mean_i(M_i^T P^)              (second message)
    out = P^ Q^T
    e_i = M_i - out

    out = P^ P^^T mean_i(M_i):  the same as compressing the mean, so all workers keep
                                the same Q
    out + mean_i(e_i) = mean_i(M_i)

A worker of weight zero is absent: it has M_i = 0 and keeps its e_i; the n_present
others subtract n / n_present out.

A direction that Q has lost, as in a step whose mean gradient is 0, is drawn anew for
the next step (`relaxjax.gradients.low_rank._low_rank`), so that the residual stays
bounded.

Leaves that a rank would not make smaller travel as they are, beside the P.

A rank that changes at stated steps takes the first columns of a Q of the highest rank.
The others wait as they are, so that a rank that rises again begins where it was.

Whatever P and Q lose on their way, all workers subtract the same `out`, and the last
law holds: so they may travel in 16 bits, or in codes of 8, and then the other leaves
have residuals as well (`relaxjax.gradients.low_rank._factor_mean`).

Cost: r (n + m) floats per matrix, and the other leaves, in exactly two messages a step
(2 k with `iterations=k`); 4 r n m flops per matrix and pass, and a QR of P. State: the
residual, of the gradient's size, and r m floats per matrix.
"""

import functools
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import jax.numpy as jnp
import optax

from relaxjax._core._axis import AxisName
from relaxjax._core._checks import require_whole
from relaxjax._core._merge_rules import EQUAL, MEAN
from relaxjax._core._owed import OWED
from relaxjax._core._phases import Clock
from relaxjax._core._tree import Layout
from relaxjax.gradients.low_rank._factor_mean import (
    CODES,
    factor_mean_fn,
    for_each_layout,
)
from relaxjax.gradients.low_rank._low_rank import AsMatrices, approximate, init_factors
from relaxjax.gradients.low_rank._low_rank_reducer import (
    LowRank,
    Rank,
    low_rank_reducer,
)

_CALLER = "power_sgd"
WARM_STARTS = ("matrix", "rest")


class PowerSGDState(NamedTuple):
    """State of `power_sgd`.

    Attributes:
      clock: in phase 0 gradients travel as they are.
      residual: e, float32, like the params; a scalar where nothing is lost.
      right: Q, float32[batch, m, r] (r at most the smaller side; the highest, if it
        changes), equal on all workers; a scalar where not compressed.
      layout: the tree that `init` saw.
    """

    clock: Clock
    residual: Annotated[Any, MEAN, OWED]
    right: Annotated[Any, EQUAL]
    layout: Layout


def power_sgd(
    axis_name: AxisName,
    *,
    rank: int | Mapping[int, Rank] = 2,
    highest: int | None = None,
    start_after: int = 0,
    iterations: int = 1,
    warm_start: str = "matrix",
    min_compression: float = 1.0,
    as_matrices: AsMatrices | None = None,
    algorithm: str = "auto",
    bits: int = 32,
    specs: Any = None,
    seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
    """Replaces the updates of each worker by a low-rank approximation of their mean.

    Put it before the optimizer (momentum comes after). What is lost is added to the
    next step's updates.

    Args:
      axis_name: the axis, or a tuple (outer, inner).
      rank: r, of every approximation; 1 to 4 is usual. Or ranks by the steps from
        which they hold, as in {0: 4, 1000: 1}, each a phase with a program of its own;
        each is one for all leaves, or one for each by its name.
      highest: the columns of Q that the state holds, for ranks that are decided while
        training (`relaxjax.controllers`); None: the highest rank that is given.
      start_after: number of first steps in which updates travel as they are; a tenth
        of training, and not less than a learning rate's warm-up, is usual where
        quality suffers. It begins a new phase (`relaxjax.advance_phases`).
      iterations: subspace iterations per step; each sends as much again.
      warm_start: the Q of the next step: of the whole "matrix", as in the paper, or of
        its "rest", M - P Q^T with an orthonormal Q, as epfml/powersgd has it with two
        iterations a step.
      min_compression: a leaf is compressed if that makes it more than this many times
        smaller: min_compression * r * (n + m) < n * m; 0 compresses every leaf of two
        dimensions or more. Vectors and scalars are never compressed.
      as_matrices: from a leaf's name and shape to (batch, n, m); None: one matrix, as
        square as can be: (3, 3, 64, 128) is 576 x 128. Layers stacked for
        `lax.scan` are a batch: `lambda name, shape: (shape[0], ...)`.
      algorithm: the algorithm that adds P and Q, one of `relaxjax.all_reduce`; with
        codes one that carries them, and "auto" is "two_shot".
      bits: bits per float in a message: 32, 16 (bfloat16), or 8 (codes of
        `relaxjax.compression.quantize`). What P and Q lose is in the residual. The
        other leaves are rounded to 16 bits; codes of them leave a residual. Explicit
        algorithms really send 16 bits; `psum` is the backend's (XLA on CPU sends 32).
      specs: where the mesh has other axes than the workers': a pytree of
        `PartitionSpec` over those; then each device approximates its own shard.
      seed: seed of the first Q, the same for all workers.

    Returns:
      A gradient transformation, for real floating leaves, computed in float32. Its
      `update` takes `weight=`, this worker's number of examples.

    Raises:
      ValueError: `rank` or `iterations` is below 1, an unknown `warm_start`, ranks say
        nothing of step 0, exceed `highest`, or change while updates travel as they
        are, `start_after` or `min_compression` below 0, `bits` not 32, 16 or 8, the
        algorithm unknown or without codes; in `init` or `update`: this rank makes no
        leaf smaller, ranks by name are not those of the leaves, `as_matrices` does not
        fit, a leaf is not real and floating, the tree is not the one that `init` saw,
        the compiler shards leaves and `specs` is missing.
      NameError: `update` outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp, optax, relaxjax
      >>> tx = optax.chain(relaxjax.power_sgd("data", rank=1), optax.sgd(1.0))
      >>> u, v = jnp.arange(1.0, 4.0), jnp.ones(5)
      >>> gradients = jnp.stack([jnp.outer(u, v), jnp.outer(3 * u, v)])  # two workers
      >>> update = lambda g: tx.update(g, tx.init(g))[0]
      >>> print(jax.vmap(update, axis_name="data")(gradients)[0, :, 0].round())
      [-2. -4. -6.]
    """
    require_whole(_CALLER, "iterations", iterations)
    if warm_start not in WARM_STARTS:
        raise ValueError(
            f"{_CALLER}: warm_start={warm_start!r} is not one of "
            f"{', '.join(WARM_STARTS)}: the Q that a step begins with"
        )
    if not isinstance(rank, Mapping):
        require_whole(_CALLER, "rank", rank)
        rank = {0: rank}
    spec = LowRank(
        _CALLER,
        axis_name,
        _columns(rank, highest),
        start_after,
        min_compression,
        as_matrices,
        bits,
        specs,
        rank,
    )
    compressor = CODES[8] if spec.checked().bits == 8 else None  # 16: a plain cast
    algorithm = spec.algorithm(algorithm, compressor)
    width = jnp.bfloat16 if bits == 16 else jnp.float32
    coded = compressor is not None
    return low_rank_reducer(
        spec,
        algorithm,
        begin=lambda params, matrices, layouts: init_factors(
            params, matrices, seed, coded=coded
        ),
        one_step=functools.partial(
            approximate,
            matrices=spec.matrices,
            mean=functools.partial(
                for_each_layout,
                factor_mean_fn(axis_name, algorithm, compressor, width),
            ),
            iterations=iterations,
            rest=warm_start == "rest",
            coded=coded,
            seed=seed,
        ),
        state_of=PowerSGDState,
    )


def _columns(ranks: Mapping[int, Rank], highest: int | None) -> int:
    """The columns of Q in the state."""
    if 0 not in ranks:
        raise ValueError(
            f"{_CALLER}: rank={dict(ranks)} says nothing of the first steps: give the "
            "rank from step 0 on, as in {0: 4, 1000: 1}"
        )
    found = []
    for step, rank in ranks.items():
        each = rank if isinstance(rank, Mapping) else {"": rank}
        for name, r in each.items():
            place = f"rank[{step!r}]" + (f"[{name!r}]" if name else "")
            require_whole(_CALLER, place, r)
            found.append(r)
    if highest is None:
        return max(found)
    require_whole(_CALLER, "highest", highest, max(found))
    return highest

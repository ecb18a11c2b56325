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
the next step (`relaxjax.gradients._low_rank`), so that the residual stays bounded.

Leaves that a rank would not make smaller travel as they are, beside the P.

Whatever P and Q lose on their way, all workers subtract the same `out`, and the last
law holds: so they may travel in 16 bits, or in codes of 8, and then the other leaves
have residuals as well (`relaxjax.gradients._factor_mean`).

Cost: r (n + m) floats per matrix, and the other leaves, in exactly two messages a step
(2 k with `iterations=k`); 4 r n m flops per matrix and pass, and a QR of P. State: the
residual, of the gradient's size, and r m floats per matrix.
"""

import functools
import math
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.sharding import PartitionSpec as P

from relaxjax._core._axis import AxisName, axis_size
from relaxjax._core._checks import (
    require_dtypes,
    require_known,
    require_local,
    require_no_compiler_axes,
    require_same,
    require_whole,
)
from relaxjax._core._marks import marked
from relaxjax._core._merge_rules import EQUAL, MEAN
from relaxjax._core._phases import Clock, clock, phased
from relaxjax._core._sharding import on_own_shards, shard_shapes, used_axes
from relaxjax._core._tree import Layout, layout_of
from relaxjax._core._weights import weigh_tree
from relaxjax.collectives import EXACT_EXCHANGES
from relaxjax.gradients._all_reduce import mean_over_workers
from relaxjax.gradients._choices import checked_algorithm
from relaxjax.gradients._factor_mean import CODED, FLOATS, factor_codec, factor_mean_fn
from relaxjax.gradients._low_rank import (
    AsMatrices,
    approximate,
    init_factors,
    matrices_of,
    most_square,
    nothing_to_compress,
)

_CALLER = "power_sgd"


class PowerSGDState(NamedTuple):
    """State of `power_sgd`.

    Attributes:
      clock: in phase 0 gradients travel as they are.
      residual: e, float32, like the params; a scalar where nothing is lost.
      right: Q, float32[batch, m, r] (r at most the smaller side), equal on all workers;
        a scalar where not compressed.
      layout: the tree that `init` saw.
    """

    clock: Clock
    residual: Annotated[Any, MEAN]
    right: Annotated[Any, EQUAL]
    layout: Layout


def power_sgd(
    axis_name: AxisName,
    *,
    rank: int = 2,
    start_after: int = 0,
    iterations: int = 1,
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
      rank: r, of every approximation; 1 to 4 is usual.
      start_after: number of first steps in which updates travel as they are; a tenth
        of training, and not less than a learning rate's warm-up, is usual where
        quality suffers. It begins a new phase (`relaxjax.advance_phases`).
      iterations: subspace iterations per step; each sends as much again.
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
      ValueError: `rank` or `iterations` is below 1, `start_after` or `min_compression`
        below 0, `bits` not 32, 16 or 8, the algorithm unknown or without codes; in
        `init` or `update`: this rank makes no leaf smaller, `as_matrices` does not fit,
        a leaf is not real and floating, the tree is not the one that `init` saw, the
        compiler shards leaves and `specs` is missing.
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
    _check(rank, start_after, iterations, min_compression, bits)
    compressor = factor_codec(bits)
    algorithm = checked_algorithm(axis_name, algorithm, compressor, "mean", specs)
    in_full = algorithm if algorithm in EXACT_EXCHANGES else "auto"
    exact = mean_over_workers(axis_name, algorithm=in_full, specs=specs)
    matrices = functools.partial(
        matrices_of,
        rank=rank,
        min_compression=min_compression,
        as_matrices=as_matrices or most_square,
    )
    coded = compressor is not None
    one_step = functools.partial(
        approximate,
        matrices=matrices,
        mean=factor_mean_fn(axis_name, algorithm=algorithm, bits=bits),
        iterations=iterations,
        coded=coded,
        seed=seed,
    )

    def init(params: optax.Params) -> Any:
        require_dtypes(params, _CALLER, "it")
        shards = matrices(shard_shapes(params, specs, _CALLER))
        if shards and not any(shards):
            raise nothing_to_compress(params, rank, min_compression)
        trees = init_factors(params, shards, seed, coded=coded)
        return PowerSGDState(clock(start_after), *trees, layout_of(params))

    def update(updates, state, params=None, *, weight=None, **extra_args) -> Any:
        del params, extra_args
        require_same(state.layout, updates, _CALLER)
        now = state._replace(clock=state.clock.tick())
        first = state.clock.phase < len(state.clock.ends)
        empty = not jax.tree.leaves(updates)  # a part of `optax.partition`
        if first or empty or axis_size(axis_name, _CALLER) == 1:
            return exact(updates, weight), now
        weighed = _ready(updates, axis_name, specs, weight)
        trees = weighed, state.residual, state.right
        specs_of_trees = None if specs is None else _specs_of(specs, trees)
        absence = _absence(axis_name, weight)
        out, residual, right = on_own_shards(
            one_step, trees, specs_of_trees, _CALLER, state.clock.count, *absence
        )
        out = optax.tree.cast_like(out, updates)
        return out, now._replace(residual=residual, right=right)

    return marked(_CALLER, "gradients", axis_name, init, phased(update))


def _ready(updates: Any, axis_name: AxisName, specs: Any, weight: Any) -> Any:
    """Updates that can be compressed, each worker's weighted."""
    require_dtypes(updates, _CALLER, "it")
    require_local(updates, axis_name, _CALLER)
    if specs is None:
        require_no_compiler_axes(_CALLER, "it")
    return weigh_tree(updates, weight, axis_name)


def _absence(axis_name: AxisName, weight: Any) -> tuple[jax.Array, ...]:
    """Whether this worker is absent, and n / n_present; () without weights."""
    if weight is None:
        return ()
    here = jnp.asarray(weight) != 0
    present = lax.psum(jnp.float32(here), axis_name)
    return ~here, axis_size(axis_name, _CALLER) / jnp.maximum(present, 1)


def _specs_of(specs: Any, trees: Any) -> Any:
    """Specs of updates, residuals and right factors: each shard has its own Q."""
    _, residual, right = trees
    of_residual = jax.tree.map(lambda spec, e: spec if e.ndim else P(), specs, residual)
    of_right = jax.tree.map(
        lambda spec, q: P(used_axes(spec) or None) if q.ndim else P(), specs, right
    )
    return specs, of_residual, of_right


def _check(
    rank: int, start_after: int, iterations: int, min_compression: float, bits: int
) -> None:
    require_whole(_CALLER, "rank", rank)
    require_whole(_CALLER, "iterations", iterations)
    require_whole(_CALLER, "start_after", start_after, 0)
    require_known(_CALLER, "min_compression", min_compression)
    require_known(_CALLER, "bits", bits)
    if not 0 <= min_compression < math.inf:
        raise ValueError(
            f"power_sgd: min_compression={min_compression!r} must be a finite factor, "
            "0 or more; 1 compresses every leaf that gets smaller by it"
        )
    if bits not in (*FLOATS, CODED):
        raise ValueError(
            f"power_sgd: bits={bits!r} must be 32, 16 or 8; to send less, take a "
            "lower rank"
        )

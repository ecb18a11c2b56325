"""A reducer whose messages are the factors of low-rank approximations.

What PowerSGD and ACP-SGD share: first steps in which updates travel as they are, leaves
that a rank would not make smaller, weights, absent workers, shards beside tensor
parallelism, and slices of params that lie sharded. The rule of a step is theirs.
"""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.sharding import PartitionSpec as P

from relaxjax._core._arrays import (
    own_names,
    require_dtypes,
    require_own_parts,
    require_same,
)
from relaxjax._core._axis import AxisName, axis_size
from relaxjax._core._checks import require_known, require_whole
from relaxjax._core._phases import clock, phased
from relaxjax._core._tree import layout_of
from relaxjax._core._weights import is_absent, weigh_tree
from relaxjax._core.layouts._sharding import (
    on_own_shards,
    shard_shapes,
    sharded_over,
    used_axes,
)
from relaxjax._core.traced._marks import marked
from relaxjax.collectives import EXACT_EXCHANGES, is_shard
from relaxjax.compression import Compressor
from relaxjax.gradients.low_rank._low_rank import (
    AsMatrices,
    Matrices,
    matrices_of,
    most_square,
    nothing_to_compress,
)
from relaxjax.gradients.mean._all_reduce import mean_over_workers
from relaxjax.gradients.mean._choices import checked_algorithm

BITS = (32, 16, 8)
Rank = int | Mapping[str, int]
"""Of all leaves, or of each by its name."""


class LowRank(NamedTuple):
    """What is approximated, and how it travels; the arguments of `power_sgd`."""

    caller: str
    axis_name: AxisName
    rank: int
    start_after: int
    min_compression: float
    as_matrices: AsMatrices | None
    bits: int
    specs: Any
    ranks: Mapping[int, Rank] | None = None  # by the steps from which they hold

    def checked(self) -> "LowRank":
        """The same, with numbers that can be."""
        require_whole(self.caller, "rank", self.rank)
        require_whole(self.caller, "start_after", self.start_after, 0)
        for step in self.ranks or {}:
            require_whole(self.caller, f"the step of rank[{step!r}]", step, 0)
            if 0 < step <= self.start_after:
                raise ValueError(
                    f"{self.caller}: rank={dict(self.ranks or {})} changes after "
                    f"{step} steps, and nothing is approximated in the first "
                    f"{self.start_after}, by start_after; give steps beyond it"
                )
        require_known(self.caller, "min_compression", self.min_compression)
        require_known(self.caller, "bits", self.bits)
        if not 0 <= self.min_compression < math.inf:
            raise ValueError(
                f"{self.caller}: min_compression={self.min_compression!r} must be a "
                "finite factor, 0 or more; 1 compresses every leaf that gets smaller "
                "by it"
            )
        if self.bits not in BITS:
            raise ValueError(
                f"{self.caller}: bits={self.bits!r} must be 32, 16 or 8; to send "
                "less, take a lower rank"
            )
        return self

    @property
    def ends(self) -> list[int]:
        """The steps at which another phase begins."""
        return [self.start_after, *sorted(step for step in self.ranks or {} if step)]

    def rank_in(self, phase: int) -> Rank:
        """The rank of a phase, from 1 on."""
        step = self.ends[phase - 1] if phase > 1 else 0
        return self.ranks[step] if self.ranks else self.rank

    def require_names(self, params: Any, shards: list[Matrices | None]) -> None:
        """Refuses ranks by name that are not those of the leaves."""
        names = own_names(params)
        low = {name for name, m in zip(names, shards, strict=True) if m}
        for step, rank in (self.ranks or {}).items():
            given = rank.keys() if isinstance(rank, Mapping) else low
            if odd := sorted((given - set(names)) | (low - given)):
                raise ValueError(
                    f"{self.caller}: rank[{step}] must give one rank to each leaf that "
                    f"is compressed, {', '.join(sorted(low))}, and to no other name; "
                    f"{odd[0]!r} is {'missing' if odd[0] in low else 'no leaf'}"
                )

    def algorithm(self, algorithm: str, compressor: Compressor | None) -> str:
        """The algorithm that carries the messages, with "auto" resolved."""
        return checked_algorithm(
            self.axis_name, algorithm, compressor, "mean", self.specs
        )

    def matrices(self, tree: Any) -> list[Matrices | None]:
        """How each leaf is compressed; None where it is not."""
        return matrices_of(
            jax.tree.map(rows_held, tree, is_leaf=is_shard),
            rank=self.rank,
            min_compression=self.min_compression,
            as_matrices=self.as_matrices,
            caller=self.caller,
        )


def rows_held(leaf: Any) -> Any:
    """The shape of a leaf; where params lie sharded, of the rows that a slice holds.

    A slice that does not end with a row is a vector.
    """
    if not is_shard(leaf):
        return leaf
    value, (_, _, columns) = leaf.value, most_square("", leaf.shape)
    *layers, c = value.shape
    if c % columns or not c:
        return jax.ShapeDtypeStruct(value.shape, value.dtype)
    return jax.ShapeDtypeStruct((*layers, c // columns, columns), value.dtype)


def low_rank_reducer(
    spec: LowRank,
    algorithm: str,
    *,
    begin: Callable[..., tuple[Any, ...]],
    one_step: Callable[..., tuple[Any, ...]],
    state_of: Callable[..., Any],
) -> optax.GradientTransformationExtraArgs:
    """The transformation that replaces updates by what `one_step` makes of them.

    Args:
      spec: what is approximated.
      algorithm: the algorithm that carries the messages.
      begin: from params, `spec.matrices` and `layouts=` of them (`sharded_over`) to the
        trees of the state: the residual, float32, and factors, float32[shards * batch,
        side, r].
      one_step: from (updates, *trees), the number of the step, where there are weights
        whether this worker is absent and n / n_present, and `layouts=`, to the same
        trees.
      state_of: the class of the state: a clock, the trees, a layout.
    """
    caller, axis_name, specs = spec.caller, spec.axis_name, spec.specs
    in_full = algorithm if algorithm in EXACT_EXCHANGES else "auto"
    exact = mean_over_workers(axis_name, algorithm=in_full, specs=specs)

    def init(params: optax.Params) -> Any:
        require_dtypes(params, caller, "it")
        shards = spec.matrices(shard_shapes(params, specs, caller))
        if shards and not any(shards):
            raise nothing_to_compress(params, spec.rank, spec.min_compression, caller)
        spec.require_names(params, shards)
        trees = begin(params, shards, layouts=sharded_over(params, specs))
        return state_of(clock(*spec.ends), *trees, layout_of(params))

    def update(updates, state, params=None, *, weight=None, **extra_args) -> Any:
        del params, extra_args
        before, *trees, layout = state
        require_same(layout, updates, caller)
        now = before.tick()
        first = before.phase == 0
        empty = not jax.tree.leaves(updates)  # a part of `optax.partition`
        if first or empty or axis_size(axis_name, caller) == 1:
            return exact(updates, weight), state_of(now, *trees, layout)
        trees = _ready(updates, spec, weight), *trees
        specs_of_trees = None if specs is None else _specs_of(specs, trees)
        absence = _absence(spec, weight)
        step = functools.partial(one_step, layouts=sharded_over(updates, specs))
        if (rank := spec.rank_in(before.phase)) != spec.rank:
            step = functools.partial(_at_rank, rank, step)
        out, *trees = on_own_shards(
            step, trees, specs_of_trees, caller, before.count, *absence
        )
        out = optax.tree.cast_like(out, updates)
        return out, state_of(now, *trees, layout)

    return marked(caller, "gradients", axis_name, init, phased(update))


def _at_rank(rank: Rank, step: Callable[..., Any], trees: Any, *rest: Any) -> Any:
    """A step with the first columns of the factors; the others wait as they are."""
    updates, residual, *factors = trees
    names = own_names(updates)
    each = [rank.get(name) if isinstance(rank, Mapping) else rank for name in names]
    ranks = jax.tree.structure(updates).unflatten(each)
    few = [jax.tree.map(_first_columns, q, ranks) for q in factors]
    out, residual, *new = step((updates, residual, *few), *rest)
    pairs = zip(factors, new, strict=True)
    return out, residual, *(jax.tree.map(_with_the_others, *pair) for pair in pairs)


def _first_columns(q: jax.Array, rank: int) -> jax.Array:
    return q[..., :rank] if q.ndim else q


def _with_the_others(q: jax.Array, new: jax.Array) -> jax.Array:
    if not q.ndim:
        return new
    return jnp.concatenate([new, q[..., new.shape[-1] :]], axis=-1)


def _ready(updates: Any, spec: LowRank, weight: Any) -> Any:
    """Updates that can be compressed, each worker's weighted."""
    require_dtypes(updates, spec.caller, "it")
    require_own_parts(updates, spec.axis_name, spec.specs, spec.caller)
    return weigh_tree(updates, weight, spec.axis_name)


def _absence(spec: LowRank, weight: Any) -> tuple[jax.Array, ...]:
    """Whether this worker is absent, and n / n_present; () without weights."""
    if weight is None:
        return ()
    absent = is_absent(weight)
    present = lax.psum(jnp.float32(~absent), spec.axis_name)
    return absent, axis_size(spec.axis_name, spec.caller) / jnp.maximum(present, 1)


def _specs_of(specs: Any, trees: tuple[Any, ...]) -> Any:
    """Specs of updates, residuals and factors: each shard has factors of its own."""
    _, residual, *factors = trees
    of_residual = jax.tree.map(lambda spec, e: spec if e.ndim else P(), specs, residual)
    of_factor = functools.partial(
        jax.tree.map, lambda spec, q: P(used_axes(spec) or None) if q.ndim else P()
    )
    return specs, of_residual, *(of_factor(specs, q) for q in factors)

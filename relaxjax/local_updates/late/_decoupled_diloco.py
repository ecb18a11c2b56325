"""Decoupled DiLoCo: fragments merge by turns, over those workers that are there.

Source: Douillard et al. 2026, as second-hand notes give it. The
leaves are dealt out to P fragments of nearly one size. Merge k = 0, 1, .. is that of
fragment k mod P; it is read after step (k + 1) H / P, and taken over tau steps later.
With M_k the workers present in it, a the fragment's common part, c_i and s_i the tokens
and steps of worker i since it last took the fragment over, O the outer optimizer:

    x_i <- x_i + u_i                                   (each step)
    D_i = a - x_i,  w_i = c_i^2 / s_i                  (i in M_k; read)
    a <- a + O(merge of D_i by w_i)                    (tau steps later)
    x_i <- a,  c_i = s_i = 0                           (i in M_k)

The merge is `relaxjax.local_updates.common._outer_merge`'s: "rda" or "mean". D_i is
taken from the newest a, whatever worker i has seen of it. A worker that is absent
contributes nothing, whatever it holds, and goes on from its own model; its steps and
tokens go on counting, until a merge in which it is present. What moved in the tau steps
is lost by those that take a over. Where nobody present has tokens, nothing is changed.

    one fragment, tau = 0, "mean", all present, equal tokens:  `diloco`

Row k of the tables is merge k, so that a log of merges (version, contributors, who took
it over) is such a table, and can be run again. The quorum is in the table as well: a
row of zeros is a merge that did not come about.

In lock step this is the mathematics of islands that come and go, and saves no time.

Cost: over H steps that of the merge for all params, a P-th at a time; where workers
have weights, two float32 more for each merge. State: that of DiLoCo, and D_i.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import optax
from jax import lax

from relaxjax._core._axis import AxisName
from relaxjax._core._checks import require_transformation, require_whole
from relaxjax._core._cond import select_tree, when
from relaxjax._core._tree import layout_of
from relaxjax._core.layouts._sharding import fitting
from relaxjax._core.traced._marks import marked, whole_method
from relaxjax.compression import Compressor
from relaxjax.local_updates.common._fragments import deal, join, split, steps_between
from relaxjax.local_updates.common._local_steps import ExchangeSpec, outer_gradient
from relaxjax.local_updates.common._presence import Presence, presence_of
from relaxjax.local_updates.common._tokens import Tokens, tokens_of, weight_of
from relaxjax.local_updates.late._decoupled_state import (
    Contribution,
    DecoupledDilocoState,
    first_state,
)
from relaxjax.local_updates.periodic._diloco import AnchorState, outer_step
from relaxjax.merges import Rule
from relaxjax.periods import Period, laps

_CALLER = "decoupled_diloco"


def decoupled_diloco(
    inner: optax.GradientTransformation,
    axis_name: AxisName,
    *,
    sync_every: Period,
    fragments: int = 2,
    overlap: int = 0,
    present: Any = 1.0,
    adopts: Any = None,
    tokens: Any = None,
    merge: str | Rule = "rda",
    fragment_of: Callable[[str], int] | None = None,
    outer: optax.GradientTransformation | None = None,
    compressor: Compressor | None = None,
    algorithm: str = "auto",
    bucket_bytes: int = 8 * 2**20,
    specs: Any = None,
    seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
    """DiLoCo in fragments, whose merges do not wait for workers that are absent.

    Experimental: this may change in any release.

    Args:
      inner: each worker's optimizer, which sees its own gradients.
      axis_name: the axis, or a tuple (outer, inner), whose workers are counted host by
        host.
      sync_every: H, the number of steps from one merge of a fragment to its next.
        Or a schedule of `relaxjax.periods`, which is asked when all fragments were
        read; its periods are taken up to a multiple of P, above tau.
      fragments: P, the number of fragments; H is a multiple of it.
      overlap: tau, the number of steps from reading to merging, 0 to H - 1. The paper
        has P = H = 24 and tau = 2.
      present: bools or 0 and 1 [period, workers] with a row for each merge; or the
        probability that a worker is present, drawn for each merge and worker.
      adopts: like `present`: who takes over what was merged; None: those present. A
        worker that came too late is absent and adopts.
      tokens: numbers of 0 or more [period, workers] with a row for each step; None: as
        many for all. A worker without tokens stands still in that step.
      merge: "rda", the mean length along the mean direction, leaf by leaf; "mean"; or
        a rule of `relaxjax.merges`, see `relaxjax.diloco`.
      fragment_of: from a leaf's name to its fragment, 0 to P - 1, such as one for the
        embeddings alone; None deals the leaves out by size.
      outer: see `relaxjax.diloco`; each fragment has its own state.
      compressor: see `relaxjax.diloco`; of the directions, if `merge` is "rda".
      algorithm: see `relaxjax.all_reduce`.
      bucket_bytes: see `relaxjax.all_reduce`.
      specs: see `relaxjax.all_reduce`; for the whole model.
      seed: the seed of random compressors, and of who is present.

    Returns:
      A gradient transformation, as in `relaxjax.diloco`, without `weight=`.

    Raises:
      TypeError: in `init`: an outer optimizer that needs a loss or other arguments.
      ValueError: H or P below 1, H not a multiple of P, an overlap of H or more, a
        table or probability that is not one, an unknown `merge`; in `init`: a fragment
        without leaves, or one that does not exist; what `relaxjax.diloco` refuses; in
        `update`: a table without a column for each worker, a `weight`.
      NameError: `update` outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp, optax, relaxjax
      >>> tx = relaxjax.decoupled_diloco(
      ...     optax.sgd(1.0),
      ...     "data",
      ...     sync_every=1,
      ...     fragments=1,
      ...     outer=optax.sgd(1.0),
      ...     present=[[1, 1, 0]],
      ... )
      >>> def train(gradient):
      ...     x = jnp.float32(0)
      ...     updates, _ = tx.update(gradient, tx.init(x), x)
      ...     return optax.apply_updates(x, updates)
      >>> print(jax.vmap(train, axis_name="data")(jnp.array([1.0, 3.0, 8.0])))
      [-2. -2. -8.]
    """
    require_transformation("decoupled_diloco", "inner", inner)
    _check(sync_every, fragments, overlap)
    shortest = overlap // fragments + 1
    times = laps(_CALLER, "sync_every", sync_every, fragments, shortest)
    presence = presence_of(_CALLER, axis_name, present, adopts, seed)
    counted = tokens_of(_CALLER, axis_name, tokens)
    exchange = ExchangeSpec(
        _CALLER, axis_name, compressor, algorithm, bucket_bytes, specs, seed
    )._replace(merge=merge)
    step = outer_step(exchange, outer)
    numbers_of = functools.partial(deal, _CALLER, fragments, fragment_of)
    equal = tokens is None and presence.is_everyone()
    plan = _Plan(presence, counted, overlap, equal)

    def init(params: optax.Params) -> Any:
        parts = split(fragments, numbers_of(params), params)
        memory = [step.init(x) for x in parts]
        return first_state(memory, layout_of(params), times.start())

    def update(updates, state, params=None, *, weight=None, **extra_args) -> Any:
        del extra_args
        exchange.require(state, updates, params, None)
        _refuse_weight(weight)
        numbers, (count, every) = numbers_of(updates), times.place(state.step)
        parts_of = functools.partial(split, fragments, numbers)
        fit = fitting(specs, updates, _CALLER)
        specs_of = [None] * fragments if fit is None else parts_of(fit)
        state = plan.counted(state)
        parts = zip(parts_of(updates), parts_of(params), specs_of, strict=True)
        moved = []
        for k, (u, x, part) in enumerate(parts):
            rule = outer_step(exchange._replace(specs=part), outer)
            u, state = plan.turn(rule, k, count == (k + 1) * every, u, x, state)
            moved.append(u)
        now = times.after(state.step, count)
        return join(numbers, moved), state._replace(step=now)

    outer_half = marked(_CALLER, "models", axis_name, init, update)
    first = counted.standing_still(inner)
    return whole_method(_CALLER, first, outer_half)


class _Plan(NamedTuple):
    """What happens to a fragment in a step, and when."""

    presence: Presence
    tokens: Tokens
    overlap: int
    equal: bool  # nobody is absent, and all weigh the same

    def counted(self, state: DecoupledDilocoState) -> DecoupledDilocoState:
        """The state with this step's tokens in its counters."""
        now = self.tokens.at(state.tick)
        return state._replace(
            tokens=state.tokens + now,
            steps=state.steps + (now > 0).astype(state.steps.dtype),
            tick=(state.tick + 1) % self.tokens.period,
        )

    def turn(
        self, rule, k: int, due, u, x, state: DecoupledDilocoState
    ) -> tuple[Any, DecoupledDilocoState]:
        """The update of fragment k, which may be read, and merged, in this step."""
        memory, read = state.kept[k], state.contributions[k]
        u, x = (optax.tree.cast_like(tree, memory.anchor) for tree in (u, x))
        read = select_tree(due, self._read(memory.anchor, x, u, k, state), read)
        meet = functools.partial(self._merge, rule)
        taken = jnp.bool_(False)
        u, memory, taken = when(read.left == 0, meet, (u, memory, taken), x, read)
        goes_on = (
            jnp.ones_like(state.steps).at[k].set((~taken).astype(state.steps.dtype))
        )
        return u, state._replace(
            merge=(state.merge + jnp.asarray(due, jnp.int32)) % self.presence.period,
            kept=[*state.kept[:k], memory, *state.kept[k + 1 :]],
            contributions=[
                *state.contributions[:k],
                read._replace(left=jnp.maximum(read.left - 1, -1)),
                *state.contributions[k + 1 :],
            ],
            tokens=goes_on * state.tokens,
            steps=goes_on * state.steps,
        )

    def _read(self, anchor, x, u, k: int, state: DecoupledDilocoState) -> Contribution:
        """What this worker contributes, as it stands after this step."""
        here, adopts = self.presence.here(state.merge)
        weight = jnp.where(here, weight_of(state.tokens[k], state.steps[k]), 0)
        left = jnp.asarray(self.overlap, jnp.int32)
        return Contribution(left, outer_gradient(anchor, x, u), weight, adopts)

    def _merge(self, rule, before: tuple[Any, AnchorState, Any], x, read) -> Any:
        """The update, the memory, and whether this worker has taken the merge over."""
        u, memory, _ = before
        if self.equal:
            memory = rule.update(read.gradient, memory, None)
            return optax.tree.sub(memory.anchor, x), memory, jnp.bool_(True)
        anyone = lax.psum(read.weight, self.presence.axis_name) > 0
        new = rule.update(read.gradient, memory, read.weight)
        memory = select_tree(anyone, new, memory)
        moved, taken = optax.tree.sub(memory.anchor, x), anyone & read.adopts
        return optax.tree.where(taken, moved, u), memory, taken


def _refuse_weight(weight: Any) -> None:
    if weight is not None:
        raise ValueError(
            f"{_CALLER}: weight= has no meaning here: say in tokens= how much each "
            "worker takes in, and in present= who is there"
        )


def _check(sync_every: Period, fragments: int, overlap: int) -> None:
    require_whole(_CALLER, "fragments", fragments)
    require_whole(_CALLER, "overlap", overlap, 0)
    if callable(sync_every):
        return
    steps_between(_CALLER, sync_every, fragments)
    if overlap >= sync_every:
        raise ValueError(
            f"{_CALLER}: overlap={overlap} must be below sync_every={sync_every}: what "
            "is read of a fragment must be merged before it is read again"
        )

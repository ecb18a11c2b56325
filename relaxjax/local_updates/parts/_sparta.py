"""SPARTA: a small share of each model is averaged in every step.

Source: SPARTA (Beton et al. 2025), as exo gym's program has it. After a step of
each worker's own optimizer, for a set S_t of elements that is the same on all workers:

    x_i <- x_i + u_i
    x_i[S_t] <- mean_j x_j[S_t]

and late by tau rounds, with s_i = x_i[S] as it was read then:

    x_i[S_{t-tau}] <- x_i[S_{t-tau}] + mean_j s_j - s_i

S comes from a counter, so that nothing but values travels. A leaf of N elements is cut
in k = ceil(N / T) neighboring strata of T, the last one shorter, T = 1 / share; S has
one element out of each, at h_j + o_t modulo T in the j-th:

    partition    h_j is drawn once in T rounds, each of which has an o_t of its own
    random       h_j is drawn anew in each round

    mean_i x_i is untouched; without updates, the squares of the workers' distances
    fall by (1 - 1 / T) a round in expectation, and to 0 in T rounds of a partition

Cost: what `all_reduce` sends for k floats of each leaf, every round. State: a counter;
late, tau k floats of each leaf.
"""

import functools
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from relaxjax._core._axis import AxisName
from relaxjax._core._checks import require_fraction, require_known, require_whole
from relaxjax._core._cond import when
from relaxjax._core._local import LocalState
from relaxjax._core._merge_rules import EQUAL, MEAN
from relaxjax._core._random import bits, fold, key_words
from relaxjax._core._tree import layout_of, wide, widened
from relaxjax._core._weights import unless_absent
from relaxjax._core.traced._marks import marked
from relaxjax.local_updates.common._local_steps import ExchangeSpec

_CALLER = "sparta"
SELECTIONS = ("partition", "random")


class SpartaState(NamedTuple):
    """State of `sparta`.

    Attributes:
      step: uint32, the number of steps; equal on all workers.
      waiting: s, what was read in the last tau rounds, float32[tau, k] for each leaf.
      reducer: the state of the `all_reduce` of values.
      leaves: the leaves that differ between workers.
    """

    step: Annotated[jax.Array, EQUAL]
    waiting: Annotated[Any, MEAN]
    reducer: Any
    leaves: Annotated[LocalState, MEAN]


def sparta(
    axis_name: AxisName,
    share: float = 0.005,
    *,
    every: int = 1,
    delay: int = 0,
    selection: str = "partition",
    algorithm: str = "auto",
    bucket_bytes: int = 8 * 2**20,
    seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
    """Averages a few elements of the workers' models in each step.

    Put it after the optimizer, which then sees each worker's own gradient; or so inside
    of `diloco`, whose rounds may then be longer. The models differ:
    `relaxjax.consensus` gives one.

    Args:
      axis_name: the axis, or a tuple (outer, inner).
      share: p, in (0, 1], of each leaf's elements in a round; taken as 1 / T of a whole
        T. 0.0005 to 0.005 are usual beside DiLoCo, 0.05 to 0.5 alone.
      every: number of steps from one round to the next, 1 or more.
      delay: tau, the number of rounds from reading values to their mean, 0 or more.
      selection: "partition", each element once in T rounds, or "random".
      algorithm: see `relaxjax.all_reduce`, which averages the values.
      bucket_bytes: see `relaxjax.all_reduce`.
      seed: the seed of the sets, the same for all workers.

    Returns:
      A gradient transformation whose `update` needs `params`. Updates come out in
      float32 where a param is narrower. `update` takes `weight=`: what this worker's
      model counts for; with zero it is absent, and goes on from its own.

    Raises:
      ValueError: `share` is not in (0, 1], `every < 1`, `delay < 0`, an unknown
        `selection`; what `relaxjax.all_reduce` refuses; in `update` another tree than
        `init` saw, or no `params`.
      NameError: `update` outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp, optax, relaxjax
      >>> tx = optax.chain(optax.sgd(1.0), relaxjax.sparta("data", 0.5))
      >>> def train(x):
      ...     state = tx.init(x)
      ...     for _ in range(2):
      ...         updates, state = tx.update(jnp.zeros(4), state, x)
      ...         x = optax.apply_updates(x, updates)
      ...     return x
      >>> x = jnp.array([[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]])
      >>> print(jax.vmap(train, axis_name="data")(x))
      [[2. 3. 4. 5.]
       [2. 3. 4. 5.]]
    """
    rounds = _check(share, every, delay, selection)
    exchange = ExchangeSpec(
        _CALLER, axis_name, None, algorithm, bucket_bytes, None, seed
    )
    reducer = exchange.reducer()

    def start(params: Any, *shape: int) -> Any:
        return jax.tree.map(
            lambda x: jnp.zeros((*shape, -(-x.size // rounds)), wide(x.dtype)), params
        )

    def init(params: optax.Params) -> Any:
        first = start(params, delay), reducer.init(start(params))
        leaves = LocalState(layout_of(params))
        return SpartaState(jnp.zeros((), jnp.uint32), *first, leaves)

    def meet(before: tuple[Any, Any, Any], x: Any, number: Any, w: Any) -> Any:
        """A round: the next updates, what waits, the reducer's state."""
        u, waiting, memory = before

        def sets(late: int) -> Any:
            leaves, tree = jax.tree.flatten(x)
            draw = functools.partial(chosen, rounds=rounds, selection=selection)
            return tree.unflatten(
                draw(leaf.size, number=number - late, seed=seed, leaf=i)
                for i, leaf in enumerate(leaves)
            )

        read = jax.tree.map(_values, optax.tree.add(x, u), sets(0))
        queue = jax.tree.map(lambda w, s: jnp.concatenate([w, s[None]]), waiting, read)
        due = jax.tree.map(lambda q: q[0], queue)
        mean, memory = reducer.update(due, memory, weight=w)
        moves = optax.tree.sub(mean, due)
        moves = unless_absent(w, moves, optax.tree.zeros_like(moves))
        u = jax.tree.map(_add, u, sets(delay), moves)
        return u, jax.tree.map(lambda q: q[1:], queue), memory

    def update(updates, state, params=None, *, weight=None, **extra_args) -> Any:
        del extra_args
        exchange.require(state, updates, params, None)
        u, x = widened(updates), widened(params)
        last = True if every == 1 else (state.step + 1) % jnp.uint32(every) == 0
        number = state.step // jnp.uint32(every)
        act = functools.partial(meet, x=x, number=number, w=weight)
        u, waiting, memory = when(last, act, (u, state.waiting, state.reducer))
        return u, SpartaState(state.step + 1, waiting, memory, state.leaves)

    return marked(_CALLER, "models", axis_name, init, update)


def chosen(
    size: int, rounds: int, selection: str, number: jax.Array, seed: int, leaf: int
) -> jax.Array:
    """int32[k]: the index out of each stratum in a round; `size` where it has none."""
    t, words = jnp.uint32(rounds), fold(key_words(seed), leaf)
    shift = jnp.zeros((), jnp.uint32)
    if selection == "partition":
        words = fold(words, number // t)
        order = jnp.argsort(bits(fold(words, 1), rounds))
        shift = order[number % t].astype(jnp.uint32)
    else:
        words = fold(words, number)
    strata = jnp.arange(-(-size // rounds), dtype=jnp.uint32)
    own = bits(fold(words, 0), strata.size) % t
    at = strata * t + (own + shift) % t
    return jnp.minimum(at, jnp.uint32(size)).astype(jnp.int32)


def _values(x: jax.Array, at: jax.Array) -> jax.Array:
    """The elements at these places; 0 past the last one."""
    return x.ravel().at[at].get(mode="fill", fill_value=0)


def _add(x: jax.Array, at: jax.Array, values: jax.Array) -> jax.Array:
    return x.ravel().at[at].add(values.astype(x.dtype), mode="drop").reshape(x.shape)


def _check(share: float, every: int, delay: int, selection: str) -> int:
    """T, the number of rounds that average each element once."""
    require_known(_CALLER, "share", share)
    require_fraction(_CALLER, "share", share)
    require_whole(_CALLER, "every", every)
    require_whole(_CALLER, "delay", delay, 0)
    if selection not in SELECTIONS:
        raise ValueError(
            f"{_CALLER}: selection={selection!r} is not one of {', '.join(SELECTIONS)}"
        )
    return max(1, round(1 / share))
